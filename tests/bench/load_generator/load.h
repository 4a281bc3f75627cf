/* What the parts of the load generator share; main.c says what it does. */
#ifndef LOAD_H
#define LOAD_H

#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

/* Bytes that grow at the end; a zero byte follows them. */
typedef struct {
  char *data;
  size_t length, capacity;
} Buffer;

void append(Buffer *buffer, const void *data, size_t length);
void append_text(Buffer *buffer, const char *text);
void append_replaced(Buffer *buffer, const char *data, size_t length, const char *key, const char *value, size_t size);
void consume(Buffer *buffer, size_t length);
Buffer read_file(const char *name);
_Noreturn void die(const char *what);

/* The options; a name that was not given is NULL. */
typedef enum { HTTP, ELICIT, MRTR, WS, STDIO } Mode;
typedef struct {
  Mode mode;
  int port, connections, in_flight, server_core, calls;
  double duration, warmup;
  const char *request, *answer, *opening, *sessions, *expect, *path;
} Options;
extern Options options;

/* The run: which process is measured, and what was seen of it. */
extern pid_t server;
extern double started; /* when the load began: the warmup counts from here */

double now(void);
void count_call(void);
void count_error(const char *why, const char *data, size_t length);
void note_first_answer(double milliseconds);
int over(void);
void report(void);

/* The number of the next call, of nine digits, takes the place of each "#########". */
#define NUMBER "#########"
#define NUMBER_DIGITS 9
void next_number(void);
void put_number(char *data, size_t length);

/* A large message has its numbers near the beginning. */
#define LARGE 65536
#define NUMBERS_OF_LARGE 2048
void put_number_in_message(Buffer *message);

#define READ_BYTES 262144
#define STALLED 20.0 /* seconds after which a run that should be over is given up */
extern int poller;
void watch(int fd, void *owner, uint32_t events, int operation);

void run_http(void);
void run_links(char **command);

#endif
