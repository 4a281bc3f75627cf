/* Connections that carry one request at a time, and the worker that each belongs to. */
#ifndef HTTP_H
#define HTTP_H

#include "load.h"

typedef struct Worker Worker;

/* Where a response is: in its head, in a body of known length, or in a chunk's size, data, line end, or the last one.
 */
typedef enum { HEAD, BODY, CHUNK_SIZE, CHUNK, CHUNK_END, LAST_CHUNK } State;

typedef struct {
  int fd;
  Worker *worker;
  int for_answers; /* the second connection of a worker, on which it answers questions */
  Buffer out, in, body;
  size_t sent, parsed, left;
  State state;
  int status, busy, closing;
} Connection;

/* One call after the other, in one session. */
struct Worker {
  Connection connections[2];
  char session[256];
  Buffer request; /* with the placeholders for numbers */
  int asked;      /* whether the question of this call has come */
};

/* http.c: bytes */
void open_connection(Connection *connection);
void reopen_connection(Connection *connection);
void flush_connection(Connection *connection);

/* http_calls.c: calls */
void prepare_worker(Worker *worker, const char *session);
void start_call(Worker *worker);
void on_body(Connection *connection);
void on_response(Connection *connection);
void read_templates(void);

#endif
