/* entry.S - where control enters and leaves the gate.
 *
 * Assembly, since each of these keeps a register contract that C cannot state: a
 * system-call site may lose rax, rcx and r11, and nothing else. */
#include "abi.h"

	.section .head, "a"
	.globl gate_head
gate_head: /* struct Head in src/lib.rs */
	.long GATE_MAGIC, GATE_ABI
	.long gate_entry - gate_head
	.long gate_fault_entry - gate_head
	.long gate_start - gate_head
	.long gate_patch - gate_head
	.long gate_restore - gate_head
	.long copy_string - gate_head
	.long gate_offsets - gate_head
	.long gate_faults_init - gate_head
	.long gate_thunk_init - gate_head
	.long copy_vector - gate_head
	.long copy_stream - gate_head
	.long map_memory - gate_head

	.text
/* Called by a stub with rax = number, r11 = task, and rcx free; the stack is below the
 * site's red zone. Returns rcx = 0 if rax holds the result, 1 if the stub is to
 * execute the system call. */
	.globl gate_entry
gate_entry:
	cmp $512, %rax
	jae pass
	bt %rax, handled(%rip)
	jnc pass
	push %r9
	push %r8
	push %r10
	push %rdx
	push %rsi
	push %rdi
	push %rax
	push %rbp
	mov %rsp, %rbp
	lea 8(%rsp), %rsi
	mov %r11, %rdi
	and $-16, %rsp
	call gate_dispatch
gate_return:
	mov %rbp, %rsp
	pop %rbp
	mov %rax, %rcx
	pop %rax
	pop %rdi
	pop %rsi
	pop %rdx
	pop %r10
	pop %r8
	pop %r9
	ret
pass:
	mov $1, %ecx
	ret

/* gate_return_on(frame): returns from gate_entry with verdict DONE, on another stack. The
 * values that gate_entry has pushed, and its return address, lie at `frame` there. */
	.globl gate_return_on
gate_return_on:
	mov %rdi, %rbp
	xor %eax, %eax
	jmp gate_return

/* call_on(stack, function, argument): calls the function on that stack. */
	.globl call_on
call_on:
	push %rbp
	mov %rsp, %rbp
	mov %rdi, %rsp
	mov %rdx, %rdi
	call *%rsi
	mov %rbp, %rsp
	pop %rbp
	ret

/* Signal handler for SIGSEGV and SIGBUS; a task's thunk has put the task into rcx.
 * Runs the program's own handler, if it has one, as if the kernel had called it. */
	.globl gate_fault_entry
gate_fault_entry:
	push %rdi
	push %rsi
	push %rdx
	call gate_fault
	pop %rdx
	pop %rsi
	pop %rdi
	test %rax, %rax
	jz 1f
	mov %rax, %rcx
	xor %eax, %eax
	jmp *%rcx
1:	ret

/* The return address of a handler without a restorer. */
	.globl gate_restore
gate_restore:
	mov $15, %eax /* rt_sigreturn */
	syscall

/* gate_start(struct start *): becomes the program. From the wake-up on, the stack and
 * the thread area that we borrowed belong to the starter again. */
	.globl gate_start
gate_start:
	mov %rdi, %rbx
	mov 0(%rbx), %rsp
	mov 16(%rbx), %rdi
	test %rdi, %rdi
	jz 1f
	movl $2, (%rdi)
	mov $202, %eax /* futex */
	mov $1, %esi   /* FUTEX_WAKE, as the kernel does at exit */
	mov $0x7fffffff, %edx
	syscall
1:	mov $14, %eax /* rt_sigprocmask */
	mov $2, %edi  /* SIG_SETMASK */
	lea 24(%rbx), %rsi
	xor %edx, %edx
	mov $8, %r10d
	syscall
	mov 8(%rbx), %r11
	xor %eax, %eax
	xor %ebx, %ebx
	xor %ecx, %ecx
	xor %edx, %edx
	xor %esi, %esi
	xor %edi, %edi
	xor %ebp, %ebp
	xor %r8d, %r8d
	xor %r9d, %r9d
	xor %r10d, %r10d
	xor %r12d, %r12d
	xor %r13d, %r13d
	xor %r14d, %r14d
	xor %r15d, %r15d
	jmp *%r11
	.section .note.GNU-stack, "", @progbits
