// entry.S: the outermost frame of every goroutine (x86-64). See arch/entry.hpp.
//
// Reached by a jump with rsp = top of the stack, 16-byte aligned; r12 = function; r13 = argument.

        .text
        .p2align 4
        .globl  weft_goroutine_entry
        .hidden weft_goroutine_entry
        .type   weft_goroutine_entry, @function
        .hidden weft_goroutine_personality
        .hidden weft_goroutine_unwound
weft_goroutine_entry:
        .cfi_startproc
        .cfi_personality 0x1b, weft_goroutine_personality  // pc-relative, 4 bytes
        .cfi_def_cfa_offset 0
        .cfi_undefined %rip             // nobody called us
        .cfi_undefined %rbp
        endbr64
        xorl    %ebp, %ebp              // ends the chain of frame pointers
        movq    %r13, %rdi
        call    *%r12
        ud2                             // it never returns

        // The personality routine lands here once every frame above is gone; rsp is the top again.
        .globl  weft_goroutine_exited
        .hidden weft_goroutine_exited
weft_goroutine_exited:
        endbr64
        call    weft_goroutine_unwound
        ud2
        .cfi_endproc
        .size   weft_goroutine_entry, . - weft_goroutine_entry

        .section .note.GNU-stack, "", @progbits
