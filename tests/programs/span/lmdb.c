/* SPDX-License-Identifier: Apache-2.0 OR MIT
 *
 * lmdb.c - threads of all nodes read a database of LMDB that others write.
 *
 *	lmdb DIRECTORY [VALUE]
 *
 * With a value: commits it, and ends. Without: the first thread commits, and so do other processes;
 * after each commit threads of all nodes read what was committed. Prints `right`, or what is not.
 */
#define _GNU_SOURCE
#include "check.h"

#include <lmdb.h>
#include <pthread.h>
#include <spawn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

enum { ROUNDS = 12, KEYS = 300, THREADS = 8 };

static MDB_env *env;
static MDB_dbi table;
static pthread_barrier_t barrier;
static int expected, nodes;

static void commit(int value)
{
	MDB_txn *txn;

	CHECK(mdb_txn_begin(env, NULL, 0, &txn) == 0);
	CHECK(mdb_dbi_open(txn, NULL, MDB_INTEGERKEY, &table) == 0);
	for (int key = 0; key < KEYS; key++) {
		char bytes[200];
		memset(bytes, value + key, sizeof(bytes));
		MDB_val name = { sizeof(key), &key }, content = { sizeof(bytes), bytes };
		CHECK(mdb_put(txn, table, &name, &content, 0) == 0);
	}
	CHECK(mdb_txn_commit(txn) == 0);
}

static void reads(void)
{
	MDB_txn *txn;

	CHECK(mdb_txn_begin(env, NULL, MDB_RDONLY, &txn) == 0);
	for (int key = 0; key < KEYS; key++) {
		MDB_val name = { sizeof(key), &key }, content;
		CHECK(mdb_get(txn, table, &name, &content) == 0 && content.mv_size == 200);
		for (size_t at = 0; at < content.mv_size; at++)
			CHECK(((unsigned char *)content.mv_data)[at] == (unsigned char)(expected + key));
	}
	mdb_txn_abort(txn);
}

static void *reader(void *node)
{
	if (nagaya_nodes() > 0)
		CHECK(nagaya_migrate((int)(intptr_t)node) == 0);
	for (int round = 0; round < ROUNDS; round++) {
		pthread_barrier_wait(&barrier);
		reads();
		pthread_barrier_wait(&barrier);
	}
	return NULL;
}

int main(int argc, char **argv)
{
	pthread_t thread[THREADS];

	nodes = nagaya_nodes() > 0 ? nagaya_nodes() : 1;
	CHECK(argc >= 2 && nodes < THREADS && mdb_env_create(&env) == 0);
	CHECK(mdb_env_set_mapsize(env, 16 << 20) == 0 && mdb_env_open(env, argv[1], 0, 0600) == 0);
	if (argc > 2) {
		commit(atoi(argv[2]));
		mdb_env_close(env);
		return 0;
	}
	commit(0);
	pthread_barrier_init(&barrier, NULL, nodes + 1);
	for (int node = 0; node < nodes; node++)
		CHECK(pthread_create(&thread[node], NULL, reader, (void *)(intptr_t)node) == 0);
	for (int round = 0; round < ROUNDS; round++) {
		expected = 7 * round;
		if (round % 3 == 2) {
			char value[16];
			char *command[] = { argv[0], argv[1], value, NULL };
			pid_t child;
			int status;
			snprintf(value, sizeof(value), "%d", expected);
			CHECK(posix_spawn(&child, argv[0], NULL, NULL, command, environ) == 0);
			CHECK(waitpid(child, &status, 0) == child && status == 0);
		} else {
			commit(expected);
		}
		pthread_barrier_wait(&barrier);
		pthread_barrier_wait(&barrier);
	}
	for (int node = 0; node < nodes; node++)
		pthread_join(thread[node], NULL);
	mdb_env_close(env);
	printf("right\n");
	return 0;
}
