/* Runs a command under a seccomp filter, as container runtimes do.
 *
 * usage: run_under_seccomp CALL=ERROR... -- COMMAND [ARGUMENT]...
 * CALL is a name of the table below; ERROR is EPERM or ENOSYS, which the call then gives,
 * or kill, which ends the process. */
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

static const struct {
	const char *name;
	unsigned number;
} calls[] = {
	{"process_vm_readv", SYS_process_vm_readv},
	{"process_vm_writev", SYS_process_vm_writev},
	{"kcmp", SYS_kcmp},
	{"ptrace", SYS_ptrace},
	{"userfaultfd", SYS_userfaultfd},
	{"clone3", SYS_clone3},
	{"close_range", SYS_close_range},
	{"pidfd_open", SYS_pidfd_open},
	{"rseq", SYS_rseq},
};

static const struct {
	const char *name;
	unsigned action;
} actions[] = {
	{"EPERM", SECCOMP_RET_ERRNO | EPERM},
	{"ENOSYS", SECCOMP_RET_ERRNO | ENOSYS},
	{"kill", SECCOMP_RET_KILL_PROCESS},
};

#define LENGTH(array) (sizeof(array) / sizeof *(array))
#define RULES_MAX 32

static struct sock_filter filter[2 * RULES_MAX + 4] = {
	BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
};
static unsigned short length = 1;

static int add_rule(const char *rule)
{
	const char *error = strchr(rule, '=');
	size_t size = error ? (size_t)(error - rule) : 0;
	for (size_t c = 0; c < LENGTH(calls); c++)
		for (size_t a = 0; error && a < LENGTH(actions); a++)
			if (strlen(calls[c].name) == size && !strncmp(calls[c].name, rule, size) &&
			    !strcmp(actions[a].name, error + 1)) {
				filter[length++] = (struct sock_filter)BPF_JUMP(
					BPF_JMP | BPF_JEQ | BPF_K, calls[c].number, 0, 1);
				filter[length++] = (struct sock_filter)BPF_STMT(
					BPF_RET | BPF_K, actions[a].action);
				return 0;
			}
	return -1;
}

int main(int argc, char **argv)
{
	int i = 1;
	for (; i < argc && strcmp(argv[i], "--"); i++)
		if (i > RULES_MAX || add_rule(argv[i])) {
			fprintf(stderr, "run_under_seccomp: %s: no such rule\n", argv[i]);
			return 2;
		}
	if (i + 1 >= argc) {
		fprintf(stderr, "usage: run_under_seccomp CALL=ERROR... -- COMMAND [ARGUMENT]...\n");
		return 2;
	}
	filter[length++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
	struct sock_fprog program = {length, filter};
	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) ||
	    prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program)) {
		perror("run_under_seccomp: seccomp");
		return 2;
	}
	execvp(argv[i + 1], argv + i + 1);
	perror(argv[i + 1]);
	return 127;
}
