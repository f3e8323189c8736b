/* Preloaded before libxpmem: looks on as a program attaches memory. Says on standard error
 * how much at once, whenever it is more than before; and ends a program that is given
 * another address than the memory has in its owner. For programs that make all of their
 * address space one segment, as UCX does: there, offsets are addresses. */
#include "check.h"

#include <dlfcn.h>
#include <stdatomic.h>
#include <xpmem.h>

static atomic_size_t largest;

void *xpmem_attach(struct xpmem_addr addr, size_t size, void *vaddr)
{
	void *(*real)(struct xpmem_addr, size_t, void *) = dlsym(RTLD_NEXT, "xpmem_attach");
	CHECK(real != NULL);
	void *got = real(addr, size, vaddr);
	CHECK(got == (void *)addr.offset);
	size_t most = largest;
	while (size > most)
		if (atomic_compare_exchange_weak(&largest, &most, size)) {
			fprintf(stderr, "PID %d attached %zu bytes\n", (int)getpid(), size);
			break;
		}
	return got;
}
