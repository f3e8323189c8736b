/* A tracer: after registration it gets the trace events and the output of tasks that are
 * spawned from then on. */
#include "say.h"

static int child(int parent)
{
	printf("traced output\n");
	fflush(stdout);
	tell(parent, 1, pvm_getopt(PvmSelfTraceTid) == parent);
	tell(parent, 1, pvm_getopt(PvmSelfTraceCode));
	tell(parent, 1, pvm_getopt(PvmSelfOutputTid) == parent);
	tell(parent, 1, pvm_getopt(PvmSelfOutputCode));
	tell(parent, 1, pvm_getopt(PvmTraceOptions));
	pvm_exit();
	return 0;
}

int main(int argc, char **argv)
{
	int parent, tid, i, first, events = 0, outputs = 0, count, from;
	char *arguments[] = { "child", NULL };
	Pvmtmask mask;

	/* Traced calls print nothing, so this enrolls without say.h's help. */
	parent = enroll();
	if (argc > 1)
		return child(parent);
	(void)argv;
	TEV_MASK_INIT(mask)
	TEV_MASK_SET(mask, TEV_SEND);
	TEV_MASK_SET(mask, TEV_NEWTASK);
	TEV_MASK_SET(mask, TEV_ENDTASK);
	say("registered %s", code(pvm_reg_tracer(0, 666, 0, 667, mask, 0, PvmTraceFull)));
	pvm_spawn(program_invocation_short_name, arguments, PvmTaskTrace, NULL, 1, &tid);
	for (i = 0; i < 5; i++)
		say("the child says %d", hear(tid, 1));
	while (within(500, -1, 666) > 0) {
		pvm_upkint(&first, 1, 1);
		say("trace message %s", first == TEV_MARK_EVENT_BUFFER ? "begins a buffer" :
		    first == TEV_MARK_EVENT_RECORD ? "is a record" :
		    first == TEV_MARK_DATA_ID ? "explains data" :
		    first == TEV_MARK_EVENT_DESC ? "explains an event" : "is something else");
		events++;
	}
	while (within(100, -1, 667) > 0) {
		pvm_upkint(&from, 1, 1);
		pvm_upkint(&count, 1, 1);
		outputs += count > 0 && from == tid;
	}
	say("events %s, output %d", yes(events > 0), outputs);
	say("unregistered %s", code(pvm_reg_tracer(0, 0, 0, 0, mask, 0, 0)));
	return pvm_exit();
}
