/* SPDX-License-Identifier: Apache-2.0 OR MIT
 *
 * Fortran's view of groups and collective calls (libgpvm3). An object of its own, so that
 * programs without groups need no libgpvm3.
 */
#include <pvm3.h>

#include "text.h"

void pvmfjoingroup_(char *group_text, int *info, int group_len)
{
	C_STRING(group, GROUP_MAX_LEN)
	*info = pvm_joingroup(group);
}

void pvmflvgroup_(char *group_text, int *info, int group_len)
{
	C_STRING(group, GROUP_MAX_LEN)
	*info = pvm_lvgroup(group);
}

void pvmffreezegroup_(char *group_text, int *size, int *info, int group_len)
{
	C_STRING(group, GROUP_MAX_LEN)
	*info = pvm_freezegroup(group, *size);
}

void pvmfgetinst_(char *group_text, int *tid, int *info, int group_len)
{
	C_STRING(group, GROUP_MAX_LEN)
	*info = pvm_getinst(group, *tid);
}

void pvmfgettid_(char *group_text, int *instance, int *info, int group_len)
{
	C_STRING(group, GROUP_MAX_LEN)
	*info = pvm_gettid(group, *instance);
}

void pvmfgsize_(char *group_text, int *info, int group_len)
{
	C_STRING(group, GROUP_MAX_LEN)
	*info = pvm_gsize(group);
}

void pvmfbarrier_(char *group_text, int *count, int *info, int group_len)
{
	C_STRING(group, GROUP_MAX_LEN)
	*info = pvm_barrier(group, *count);
}

void pvmfbcast_(char *group_text, int *tag, int *info, int group_len)
{
	C_STRING(group, GROUP_MAX_LEN)
	*info = pvm_bcast(group, *tag);
}

void pvmfgather_(void *result, void *items, int *count, int *type, int *tag, char *group_text,
		 int *root, int *info, int group_len)
{
	C_STRING(group, GROUP_MAX_LEN)
	*info = pvm_gather(result, items, *count, *type, *tag, group, *root);
}

void pvmfscatter_(void *result, void *items, int *count, int *type, int *tag,
		  char *group_text, int *root, int *info, int group_len)
{
	C_STRING(group, GROUP_MAX_LEN)
	*info = pvm_scatter(result, items, *count, *type, *tag, group, *root);
}

void pvmfreduce_(void (*function)(int *, void *, void *, int *, int *), void *items,
		 int *count, int *type, int *tag, char *group_text, int *root, int *info,
		 int group_len)
{
	C_STRING(group, GROUP_MAX_LEN)
	*info = pvm_reduce(function, items, *count, *type, *tag, group, *root);
}

void pvmmax_(int *type, void *x, void *y, int *count, int *info)
{
	PvmMax(type, x, y, count, info);
}

void pvmmin_(int *type, void *x, void *y, int *count, int *info)
{
	PvmMin(type, x, y, count, info);
}

void pvmsum_(int *type, void *x, void *y, int *count, int *info)
{
	PvmSum(type, x, y, count, info);
}

void pvmproduct_(int *type, void *x, void *y, int *count, int *info)
{
	PvmProduct(type, x, y, count, info);
}
