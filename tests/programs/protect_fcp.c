/* Two tasks send each other messages of all sizes by FCP, through a window in a file.
 *
 * usage: protect_fcp FILE */
#include "check.h"

#include <fcp.h>

#define MOST (1u << 20)

/* Ends the program if a call has failed, and prints FCP's reason. */
static void works(int result, const char *call)
{
	if (result < 0) {
		fprintf(stderr, "%s: %s (%s)\n", call, FCP_strerror(result), FCP_reason());
		exit(1);
	}
}

static void send_to(FCP_port *port, uint32_t to, char *message, size_t size)
{
	int result;
	memset(message, 'a' + (int)(size % 26), size);
	do /* the other one may not have its port yet */
		result = FCP_send(port, to, message, size, 30);
	while (result == FCP_EGONE && !usleep(1000));
	works(result, "FCP_send");
}

static void receive(FCP_port *port, char *message, size_t size)
{
	memset(message, 0, size);
	int64_t got = FCP_recv(port, NULL, 0, message, size, NULL, 30);
	works(got < 0 ? (int)got : 0, "FCP_recv");
	CHECK_EQ(got, size);
	for (size_t at = 0; at < size; at++)
		CHECK_EQ(message[at], 'a' + (int)(size % 26));
}

int main(int argc, char **argv)
{
	VCL_window *window;
	FCP_port *port;
	CHECK_EQ(argc, 2);
	uint32_t me = atoi(getenv("NAGAYA_TASK_ID")) + 1, other = 3 - me;
	char *message = malloc(MOST);
	struct VCL_plan plan = {.fields = VCL_PLAN_MEMBERS, .members = 4};
	works(VCL_open(argv[1], &plan, &window), "VCL_open");
	works(FCP_alloc(window, me, 0, FCP_PROTOCOL_II, &port), "FCP_alloc");
	for (size_t size = 1; size <= MOST; size *= 4)
		for (int half = 0; half < 2; half++)
			if (half == (me == 1))
				send_to(port, other, message, size);
			else
				receive(port, message, size);
	if (me == 1)
		puts("messages of FCP arrived");
	return 0;
}
