/* A resource manager on another host than those who ask it. */
#define ELSEWHERE "127.0.0.3"
#include "manager.c"
