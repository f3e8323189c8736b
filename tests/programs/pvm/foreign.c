/* What somebody else's process gets of a daemon whose socket it can reach: nothing. Its
 * arguments: the socket. */
#include "say.h"

#include <sys/socket.h>
#include <sys/un.h>

int main(int argc, char **argv)
{
	struct sockaddr_un name = { .sun_family = AF_UNIX };
	char bytes[4096];
	ssize_t got;
	int s = socket(AF_UNIX, SOCK_STREAM, 0);

	(void)argc;
	snprintf(name.sun_path, sizeof name.sun_path, "%s", argv[1]);
	if (connect(s, (struct sockaddr *)&name, sizeof name)) {
		say("connect: %s", strerror(errno));
	} else {
		memset(bytes, 0xee, sizeof bytes);
		got = send(s, bytes, sizeof bytes, MSG_NOSIGNAL);
		got = recv(s, bytes, sizeof bytes, 0);
		say("the daemon says %s", got > 0 ? "something" : "nothing");
	}
	close(s);
	setenv("PVMSOCK", argv[1], 1);
	pvm_setopt(PvmAutoErr, 0);
	say("mytid %s", code(pvm_mytid()));
	return 0;
}
