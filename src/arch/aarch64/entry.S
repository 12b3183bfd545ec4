// entry.S: the outermost frame of every goroutine (aarch64). See arch/entry.hpp.
//
// Reached by a jump with sp = top of the stack, 16-byte aligned; x19 = function; x20 = argument.

        .text
        .p2align 4
        .globl  weft_goroutine_entry
        .hidden weft_goroutine_entry
        .type   weft_goroutine_entry, %function
        .hidden weft_goroutine_personality
        .hidden weft_goroutine_unwound
weft_goroutine_entry:
        .cfi_startproc
        .cfi_personality 0x1b, weft_goroutine_personality  // pc-relative, 4 bytes
        .cfi_undefined x30              // nobody called us
        .cfi_undefined x29
        hint    #38                     // bti jc
        mov     x29, xzr                // ends the chain of frame pointers
        mov     x30, xzr
        mov     x0, x20
        blr     x19
        brk     #1                      // it never returns

        // The personality routine lands here once every frame above is gone; sp is the top again.
        .globl  weft_goroutine_exited
        .hidden weft_goroutine_exited
weft_goroutine_exited:
        hint    #38                     // bti jc
        bl      weft_goroutine_unwound
        brk     #1
        .cfi_endproc
        .size   weft_goroutine_entry, . - weft_goroutine_entry

        .section .note.GNU-stack, "", %progbits
