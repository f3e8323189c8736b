/* SPDX-License-Identifier: Apache-2.0 OR MIT
 *
 * Fortran's view of tasks, hosts, options and errors.
 */
#include <stdlib.h>

#include <pvm3.h>

#include "text.h"

/* Of the library, but not of pvm3.h. */
int pvmsleep(int seconds);

/* ---- The task itself and other tasks */

void pvmfmytid_(int *tid) { *tid = pvm_mytid(); }

void pvmfexit_(int *info) { *info = pvm_exit(); }

void pvmfparent_(int *tid) { *tid = pvm_parent(); }

void pvmfsiblings_(int *ntid, int *index, int *tid)
{
	static int *tids, count = -1;

	if (count < 0)
		count = pvm_siblings(&tids);
	*ntid = count;
	*tid = *index >= 0 && *index < count ? tids[*index] : PvmNoTask;
}

/* `where` is "*" for any host. */
void pvmfspawn_(char *file_text, int *flags, char *where_text, int *ntask, int *tids,
		int *info, int file_len, int where_len)
{
	C_STRING(file, NAME_MAX_LEN)
	C_STRING(where, NAME_MAX_LEN)
	*info = pvm_spawn(file, NULL, *flags, where[0] == '*' ? "" : where, *ntask, tids);
}

void pvmfkill_(int *tid, int *info) { *info = pvm_kill(*tid); }

void pvmfsendsig_(int *tid, int *signum, int *info) { *info = pvm_sendsig(*tid, *signum); }

void pvmfpstat_(int *tid, int *info) { *info = pvm_pstat(*tid); }

/* One task a call, 1 in `info`; -1 in `ntask` begins anew. */
void pvmftasks_(int *where, int *ntask, int *tid, int *parent, int *host, int *flag,
		char *file, int *info, int file_len)
{
	static struct pvmtaskinfo *tasks;
	static int count, next;

	if (next == count || *ntask == -1) {
		next = count = 0;
		*info = pvm_tasks(*where, &count, &tasks);
		if (*info < 0)
			return;
	}
	*ntask = count;
	*info = next < count;
	if (next == count)
		return;
	*tid = tasks[next].ti_tid;
	*parent = tasks[next].ti_ptid;
	*host = tasks[next].ti_host;
	*flag = tasks[next].ti_flag;
	text_from_c(file, file_len, tasks[next].ti_a_out);
	next++;
}

void pvmftidtohost_(int *tid, int *host) { *host = pvm_tidtohost(*tid); }

void pvmfcatchout_(int *yes, int *info) { *info = pvm_catchout(*yes ? stdout : NULL); }

void pvmfsleep_(int *seconds) { pvmsleep(*seconds); }

/* ---- The virtual machine */

/* One host a call, 1 in `info`; -1 in `nhost` begins anew. */
void pvmfconfig_(int *nhost, int *narch, int *tid, char *name, char *arch, int *speed,
		 int *info, int name_len, int arch_len)
{
	static struct pvmhostinfo *hosts;
	static int count, next, formats;

	if (next == count || *nhost == -1) {
		next = count = 0;
		*info = pvm_config(&count, &formats, &hosts);
		if (*info < 0)
			return;
	}
	*nhost = count;
	*narch = formats;
	*tid = hosts[next].hi_tid;
	text_from_c(name, name_len, hosts[next].hi_name);
	text_from_c(arch, arch_len, hosts[next].hi_arch);
	*speed = hosts[next].hi_speed;
	*info = 1;
	next++;
}

/* The new host's tid in `info`. */
void pvmfaddhost_(char *host_text, int *info, int host_len)
{
	int result;

	C_STRING(host, NAME_MAX_LEN)
	char *hosts[] = { host };
	*info = pvm_addhosts(hosts, 1, &result);
	if (*info >= 0)
		*info = result;
}

void pvmfdelhost_(char *host_text, int *info, int host_len)
{
	int result;

	C_STRING(host, NAME_MAX_LEN)
	char *hosts[] = { host };
	*info = pvm_delhosts(hosts, 1, &result);
	if (*info >= 0)
		*info = result;
}

void pvmfmstat_(char *host_text, int *info, int host_len)
{
	C_STRING(host, NAME_MAX_LEN)
	*info = pvm_mstat(host);
}

void pvmfarchcode_(char *arch_text, int *info, int arch_len)
{
	C_STRING(arch, NAME_MAX_LEN)
	*info = pvm_archcode(arch);
}

void pvmfhostsync_(int *host, int *sec, int *usec, int *delta_sec, int *delta_usec, int *info)
{
	struct timeval clock = { 0 }, delta = { 0 };

	*info = pvm_hostsync(*host, &clock, &delta);
	*sec = clock.tv_sec;
	*usec = clock.tv_usec;
	*delta_sec = delta.tv_sec;
	*delta_usec = delta.tv_usec;
}

void pvmfnotify_(int *what, int *tag, int *count, int *tids, int *info)
{
	*info = pvm_notify(*what, *tag, *count, tids);
}

void pvmfhalt_(int *info) { *info = pvm_halt(); }

/* The daemon's arguments are the words of `arguments`. */
void pvmfstartpvmd_(char *arguments, int *block, int *info, int arguments_len)
{
	char *words = strndup(arguments, arguments_len);
	/* Every word but the last is followed by a blank. */
	char **argv = calloc(arguments_len / 2 + 2, sizeof *argv);
	char *rest, *word;
	int argc = 0;

	if (words && argv) {
		for (word = strtok_r(words, " \t", &rest); word;
		     word = strtok_r(NULL, " \t", &rest))
			argv[argc++] = word;
		*info = pvm_start_pvmd(argc, argc ? argv : NULL, *block);
	} else {
		*info = PvmNoMem;
	}
	free(argv);
	free(words);
}

/* ---- Options and errors */

void pvmfsetopt_(int *what, int *value, int *before) { *before = pvm_setopt(*what, *value); }

void pvmfgetopt_(int *what, int *value) { *value = pvm_getopt(*what); }

/* The padding is printed, too. */
void pvmfperror_(char *message_text, int *info, int message_len)
{
	char *message = strndup(message_text, message_len);

	*info = message ? pvm_perror(message) : PvmNoMem;
	free(message);
}
