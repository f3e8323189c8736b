/* Runs a script of mailbox calls, by two tasks, and prints what comes of each.
 *
 * Lines of standard input: WHO put CLASS FLAGS, WHO get CLASS INDEX FLAGS,
 * WHO del CLASS INDEX FLAGS, WHO list, 1 end (task 1 ends, and a new one takes its place).
 * Each message put holds the number of its line.
 */
#include <pvm3.h>
#include <stdio.h>
#include <string.h>

enum { DO = 1, DONE = 2, ENDED = 3 };

static int run(const char *verb, const char *class, int a, int b, int line, int *value)
{
    *value = -1;
    if (!strcmp(verb, "put")) {
        pvm_initsend(PvmDataDefault);
        pvm_pkint(&line, 1, 1);
        return pvm_putinfo((char *)class, pvm_getsbuf(), a);
    }
    if (!strcmp(verb, "get")) {
        int result = pvm_recvinfo((char *)class, a, b);
        if (result < 0)
            return result;
        pvm_upkint(value, 1, 1);
        return 0;
    }
    return pvm_delinfo((char *)class, a, b);
}

static void list(int other)
{
    struct pvmmboxinfo *classes;
    int n, i, j;
    printf("list %d", pvm_getmboxinfo("*", &n, &classes));
    for (i = 0; i < n; i++) {
        printf(" %s", classes[i].mi_name);
        for (j = 0; j < classes[i].mi_nentries; j++) {
            int owner = classes[i].mi_owners[j];
            printf(",%d:%d:%d", classes[i].mi_indices[j],
                   owner == pvm_mytid() ? 0 : owner == other ? 1 : owner == 0 ? 9 : 8,
                   classes[i].mi_flags[j]);
        }
    }
    printf("\n");
}

int main(int argc, char **argv)
{
    char line[200], verb[20], class[100];
    int number = 0, other, who, a, b, value, result;
    pvm_mytid();
    pvm_setopt(PvmAutoErr, 0);
    if (pvm_parent() > 0) {
        for (;;) {
            pvm_recv(pvm_parent(), DO);
            pvm_upkstr(verb);
            if (!strcmp(verb, "end")) {
                pvm_exit();
                return 0;
            }
            pvm_upkstr(class);
            pvm_upkint(&a, 1, 1);
            pvm_upkint(&b, 1, 1);
            pvm_upkint(&number, 1, 1);
            result = run(verb, class, a, b, number, &value);
            pvm_initsend(PvmDataDefault);
            pvm_pkint(&result, 1, 1);
            pvm_pkint(&value, 1, 1);
            pvm_send(pvm_parent(), DONE);
        }
    }
    pvm_spawn(argv[0], 0, 0, 0, 1, &other);
    while (fgets(line, sizeof line, stdin)) {
        number++;
        a = b = 0;
        class[0] = 0;
        if (sscanf(line, "%d %19s %99s %d %d", &who, verb, class, &a, &b) < 2)
            continue;
        if (!strcmp(verb, "list")) {
            list(other);
            continue;
        }
        if (!strcmp(verb, "end")) {
            pvm_notify(PvmTaskExit, ENDED, 1, &other);
            pvm_initsend(PvmDataDefault);
            pvm_pkstr("end");
            pvm_send(other, DO);
            pvm_recv(-1, ENDED);
            pvm_spawn(argv[0], 0, 0, 0, 1, &other);
            printf("end\n");
            continue;
        }
        if (who == 0) {
            result = run(verb, class, a, b, number, &value);
        } else {
            pvm_initsend(PvmDataDefault);
            pvm_pkstr(verb);
            pvm_pkstr(class);
            pvm_pkint(&a, 1, 1);
            pvm_pkint(&b, 1, 1);
            pvm_pkint(&number, 1, 1);
            pvm_send(other, DO);
            pvm_recv(other, DONE);
            pvm_upkint(&result, 1, 1);
            pvm_upkint(&value, 1, 1);
        }
        printf("%s %d %d\n", verb, result, value);
    }
    pvm_initsend(PvmDataDefault);
    pvm_pkstr("end");
    pvm_send(other, DO);
    pvm_exit();
    return argc < 0;
}
