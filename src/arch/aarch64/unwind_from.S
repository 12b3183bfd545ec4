// unwind_from.S: makes the unwinder believe that a parked frame called us (aarch64).
//
// int weft_unwind_from(const saved_frame* at, _Unwind_Trace_Fn step, void* arg)
//
// Runs on the caller's stack like any function and calls _Unwind_Backtrace(step, arg). While that
// call is out, its unwind table describes `at`, which x19 holds, as the caller:
//
//     stack pointer  *(x19 + 8)    program counter  at (x19 + 0)    x29  at (x19 + 16)
//                                  x30              at (x19 + 24)
//
// The program counter and x30 are two things here, because an interrupted leaf function has its own
// return address in x30 still. So the return column is not x30 but 96, which libgcc keeps for
// signal frames.
//
// The table calls it a signal frame: at->pc is the instruction to be executed next, so the row of
// the unwind table is looked up for that address itself, not for the one before it.
//
// offsets: struct saved_frame in base/backtrace.hpp, asserted in backtrace.cpp

        .text
        .p2align 4
        .globl  weft_unwind_from
        .hidden weft_unwind_from
        .type   weft_unwind_from, %function
weft_unwind_from:
        .cfi_startproc
        .cfi_signal_frame
        .cfi_return_column 96
        // Column 96 has to have a rule wherever we may be found; outside the call it is x30.
        // val_expression: column 96 is { breg30 (x30) 0 }
        .cfi_escape 0x16, 96, 2, 0x8e, 0
        hint    #34                     // bti c
        stp     x30, x19, [sp, #-16]!
        .cfi_def_cfa_offset 16
        .cfi_offset x30, -16
        .cfi_offset x19, -8
        // expression: column 96 is stored at { breg31 (sp) 0 }
        .cfi_escape 0x10, 96, 2, 0x8f, 0
        mov     x19, x0
        mov     x0, x1
        mov     x1, x2
        .cfi_remember_state
        // def_cfa_expression { breg19 8; deref }
        .cfi_escape 0x0f, 3, 0x83, 8, 0x06
        // expression: column 96, the program counter, is stored at { breg19 0 }
        .cfi_escape 0x10, 96, 2, 0x83, 0
        // expression: x29 is stored at { breg19 16 }
        .cfi_escape 0x10, 29, 2, 0x83, 16
        // expression: x30 is stored at { breg19 24 }
        .cfi_escape 0x10, 30, 2, 0x83, 24
        // What the parked frame's callers keep in these is found through its own table.
        .cfi_undefined x19
        .cfi_undefined x20
        .cfi_undefined x21
        .cfi_undefined x22
        .cfi_undefined x23
        .cfi_undefined x24
        .cfi_undefined x25
        .cfi_undefined x26
        .cfi_undefined x27
        .cfi_undefined x28
        bl      _Unwind_Backtrace
        nop                             // keeps the return address inside the rows above
        .cfi_restore_state
        ldp     x30, x19, [sp], #16
        .cfi_def_cfa_offset 0
        .cfi_restore x30
        .cfi_restore x19
        .cfi_escape 0x16, 96, 2, 0x8e, 0
        ret
        .cfi_endproc
        .size   weft_unwind_from, . - weft_unwind_from

        .section .note.GNU-stack, "", %progbits
