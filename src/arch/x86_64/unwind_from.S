// unwind_from.S: makes the unwinder believe that a parked frame called us (x86-64).
//
// int weft_unwind_from(const saved_frame* at, _Unwind_Trace_Fn step, void* arg)
//
// Runs on the caller's stack like any function and calls _Unwind_Backtrace(step, arg). While that
// call is out, its unwind table describes `at`, which rbx holds, as the caller:
//
//     stack pointer  *(rbx + 8)        return address  at (rbx + 0)        rbp  at (rbx + 16)
//
// The table calls it a signal frame: at->pc is the instruction to be executed next, so the row of
// the unwind table is looked up for that address itself, not for the one before it.
//
// offsets: struct saved_frame in base/backtrace.hpp, asserted in backtrace.cpp

        .text
        .p2align 4
        .globl  weft_unwind_from
        .hidden weft_unwind_from
        .type   weft_unwind_from, @function
weft_unwind_from:
        .cfi_startproc
        .cfi_signal_frame
        endbr64
        pushq   %rbx
        .cfi_def_cfa_offset 16
        .cfi_offset %rbx, -16
        movq    %rdi, %rbx
        movq    %rsi, %rdi
        movq    %rdx, %rsi
        .cfi_remember_state
        // def_cfa_expression { breg3 (rbx) 8; deref }
        .cfi_escape 0x0f, 3, 0x73, 8, 0x06
        // expression: the return address (column 16) is stored at { breg3 (rbx) 0 }
        .cfi_escape 0x10, 16, 2, 0x73, 0
        // expression: rbp (column 6) is stored at { breg3 (rbx) 16 }
        .cfi_escape 0x10, 6, 2, 0x73, 16
        // What the parked frame's callers keep in these is found through its own table.
        .cfi_undefined %rbx
        .cfi_undefined %r12
        .cfi_undefined %r13
        .cfi_undefined %r14
        .cfi_undefined %r15
        call    _Unwind_Backtrace@PLT
        nop                             // keeps the return address inside the rows above
        .cfi_restore_state
        popq    %rbx
        .cfi_def_cfa_offset 8
        .cfi_restore %rbx
        ret
        .cfi_endproc
        .size   weft_unwind_from, . - weft_unwind_from

        .section .note.GNU-stack, "", @progbits
