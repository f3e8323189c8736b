/* loops.S - the copy loops, and the meaning of a fault in one of them.
 *
 * All have the type u64 loop(to, from, size), and return the number of bytes that they
 * could not copy. The space's copy plan (abi.h), measured for the processor, selects the
 * loop. A fault in a loop with several instructions continues in `rep movsb`, which repeats
 * it at the exact byte. A fault there ends the copy (fault.c reads the table below).
 *
 * A system-call site may have live vector registers. The vector loops restore the whole
 * registers that they use, and leave the upper halves unused if they were unused. Otherwise
 * the program's SSE code would be slower from then on. */
#include "abi.h"

	.text
	.globl copy_string, copy_vector, copy_stream, copy_pair
copy_string:
	mov %rdx, %rcx
string_copy:
	rep movsb
string_end:
	mov %rcx, %rax
	ret

/* u64 copy_pair(to, from): 16 bytes, such as an iovec; all or, returning 16, nothing that
 * counts. String instructions take longer to start than this takes. */
copy_pair:
	mov $16, %ecx
pair_begin:
	mov (%rsi), %rax
	mov 8(%rsi), %rdx
	mov %rax, (%rdi)
	mov %rdx, 8(%rdi)
	xor %ecx, %ecx
pair_end:
	mov %rcx, %rax
	ret

/* Saves zmm0-3, or ymm0-3 where there is no AVX-512; r8d: features, r9d: not 0 if the
 * upper halves are in use. Afterwards rcx is the size. */
	.macro enter
	push %rbp
	mov %rsp, %rbp
	sub $256, %rsp
	and $-64, %rsp
	mov space+COPY_FEATURES_AT(%rip), %r8d
	mov %rdx, %r10
	mov $1, %ecx
	xgetbv
	and $0x44, %eax /* XINUSE: upper halves of ymm, of zmm0-15 */
	mov %eax, %r9d
	mov %r10, %rcx
	test $COPY_AVX512, %r8d
	jz 1f
	vmovdqa64 %zmm0, (%rsp)
	vmovdqa64 %zmm1, 64(%rsp)
	vmovdqa64 %zmm2, 128(%rsp)
	vmovdqa64 %zmm3, 192(%rsp)
	jmp 2f
1:	vmovdqa %ymm0, (%rsp)
	vmovdqa %ymm1, 64(%rsp)
	vmovdqa %ymm2, 128(%rsp)
	vmovdqa %ymm3, 192(%rsp)
2:
	.endm

	.macro leave_with_rest
	mov %rcx, %rax
	test $COPY_AVX512, %r8d
	jz 1f
	vmovdqa64 (%rsp), %zmm0
	vmovdqa64 64(%rsp), %zmm1
	vmovdqa64 128(%rsp), %zmm2
	vmovdqa64 192(%rsp), %zmm3
	jmp 2f
1:	vmovdqa (%rsp), %ymm0
	vmovdqa 64(%rsp), %ymm1
	vmovdqa 128(%rsp), %ymm2
	vmovdqa 192(%rsp), %ymm3
2:	test %r9d, %r9d
	jnz 3f
	vzeroupper
3:	leave
	ret
	.endm

	.macro copy_128 store
	prefetcht0 2048(%rsi)
	prefetcht0 2112(%rsi)
	vmovdqu (%rsi), %ymm0
	vmovdqu 32(%rsi), %ymm1
	vmovdqu 64(%rsi), %ymm2
	vmovdqu 96(%rsi), %ymm3
	\store %ymm0, (%rdi)
	\store %ymm1, 32(%rdi)
	\store %ymm2, 64(%rdi)
	\store %ymm3, 96(%rdi)
	add $128, %rsi
	add $128, %rdi
	sub $128, %rcx
	cmp $128, %rcx
	.endm

copy_vector:
	enter
	cmp $128, %rcx
	jb vector_tail
vector_loop:
	copy_128 vmovdqu
	jae vector_loop
vector_tail:
	rep movsb
vector_end:
	leave_with_rest

/* Past the caches: non-temporal stores, to whole lines. */
copy_stream:
	enter
	mov %edi, %edx
	neg %edx
	and $63, %edx /* bytes before the first whole line */
	cmp $256, %rcx
	jb stream_tail
	sub %rdx, %rcx
	mov %rcx, %r11
	mov %rdx, %rcx
stream_head:
	rep movsb
	mov %r11, %rcx
stream_loop:
	copy_128 vmovntdq
	jae stream_loop
stream_tail:
	sfence
stream_rest:
	rep movsb
stream_end:
	leave_with_rest
stream_head_fault:
	add %r11, %rcx
	jmp stream_end

/* The first and last instruction at which a fault is a bad address, and the address at
 * which to continue, as offsets in the gate, which is linked at 0. */
	.section .rodata
	.globl copy_faults
	.balign 4
copy_faults:
	.long string_copy, string_end, string_end
	.long pair_begin, pair_end, pair_end
	.long vector_loop, vector_tail, vector_tail
	.long vector_tail, vector_end, vector_end
	.long stream_head, stream_head + 2, stream_head_fault
	.long stream_loop, stream_tail, stream_tail
	.long stream_rest, stream_end, stream_end
	.long 0
	.section .note.GNU-stack, "", @progbits
