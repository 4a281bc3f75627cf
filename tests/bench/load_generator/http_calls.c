/* What a worker does: a call, with a question in the middle in two modes, and the next one.
 *
 *   http     request -> result
 *   elicit   request -> question on the stream, answered on the second connection -> result on the stream
 *   mrtr     request -> question as a result -> request with the answer -> result
 */
#include "http.h"

/* A request of a file: a head without Content-Length, an empty line, and the body. */
typedef struct {
  const char *head, *body;
  size_t head_length, body_length;
} Template;
static Template request, answer;

static Template read_template(const char *name) {
  Buffer file = read_file(name);
  char *middle = memmem(file.data, file.length, "\n\n", 2);
  if (!middle) {
    die("a request without an empty line");
  }
  Template template = {.head = file.data, .head_length = middle - file.data, .body = middle + 2};
  template.body_length = file.length - template.head_length - 2;
  return template;
}

void read_templates(void) {
  request = read_template(options.request);
  if (options.answer) {
    answer = read_template(options.answer);
  }
}

/* Append the request with its length, in this session, and with a value in the place of `key`. */
static void fill(Buffer *out, const Template *template, const char *session, const char *key, const char *value,
                 size_t size) {
  Buffer head = {0}, body = {0};
  append_replaced(&head, template->head, template->head_length, "\n", "\r\n", 2);
  append_replaced(&body, template->body, template->body_length, key, value, size);
  append_replaced(out, head.data, head.length, "@SID@", session, strlen(session));
  char line[64];
  snprintf(line, sizeof line, "\r\nContent-Length: %zu\r\n\r\n", body.length);
  append_text(out, line);
  append(out, body.data, body.length);
  free(head.data);
  free(body.data);
}

void prepare_worker(Worker *worker, const char *session) {
  strcpy(worker->session, session);
  fill(&worker->request, &request, session, "@SID@", session, strlen(session));
}

static void send_out(Connection *connection) {
  put_number_in_message(&connection->out);
  connection->busy = 1;
  connection->body.length = 0;
  flush_connection(connection);
}

void start_call(Worker *worker) {
  next_number();
  worker->asked = 0;
  Connection *connection = &worker->connections[0];
  connection->out.length = connection->sent = 0;
  append(&connection->out, worker->request.data, worker->request.length);
  send_out(connection);
}

static void send_answer(Connection *connection, const char *key, const char *value, size_t size) {
  fill(&connection->out, &answer, connection->worker->session, key, value, size);
  send_out(connection);
}

/* Whether the last response is what it has to be. */
static int is_right(const Connection *connection) {
  const Buffer *body = &connection->body;
  if (connection->status != 200) {
    count_error("status", body->data, body->length);
    return 0;
  }
  if (options.expect && !memmem(body->data, body->length, options.expect, strlen(options.expect))) {
    count_error("unexpected body", body->data, body->length);
    return 0;
  }
  return 1;
}

static void next_call(Worker *worker) {
  if (worker->connections[0].closing) {
    reopen_connection(&worker->connections[0]);
  }
  start_call(worker);
}

static void finish(Worker *worker) {
  if (is_right(&worker->connections[0])) {
    count_call();
  }
  next_call(worker);
}

/* Answer the question as soon as its line is on the stream. */
void on_body(Connection *connection) {
  Worker *worker = connection->worker;
  if (options.mode != ELICIT || connection->for_answers || worker->asked) {
    return;
  }
  Buffer *body = &connection->body;
  char *found = memmem(body->data, body->length, "\"elicitation/create\"", 20);
  char *end = found ? memchr(found, '\n', body->data + body->length - found) : NULL;
  if (!end) {
    return;
  }
  char *line = found;
  while (line > body->data && line[-1] != '\n') {
    line--;
  }
  char *id = memmem(line, end - line, "\"id\":", 5);
  if (!id) {
    count_error("a question without an id", line, end - line);
    return;
  }
  id += 5;
  id += strspn(id, " ");
  worker->asked = 1;
  send_answer(&worker->connections[1], "@RID@", id, strcspn(id, ",}"));
}

/* The answer was taken, or the result came; the call is over after both. */
static void on_elicit(Connection *connection) {
  Worker *worker = connection->worker;
  if (connection->for_answers) {
    if (connection->status != 202 && connection->status != 200) {
      count_error("status of the answer", connection->body.data, connection->body.length);
    }
    if (connection->closing) {
      reopen_connection(connection);
    }
  } else if (!worker->asked) {
    count_error("no question", connection->body.data, connection->body.length);
    next_call(worker);
    return;
  }
  if (!worker->connections[0].busy && !worker->connections[1].busy) {
    finish(worker);
  }
}

/* Answer the question of the first response with a second request. */
static void on_input_required(Connection *connection) {
  Buffer *body = &connection->body;
  if (connection->status != 200 || !memmem(body->data, body->length, "input_required", 14)) {
    count_error("no question", body->data, body->length);
    next_call(connection->worker);
    return;
  }
  const char *state = memmem(body->data, body->length, "\"requestState\":\"", 16);
  size_t size = 0;
  if (state) {
    state += 16;
    while (state[size] && state[size] != '"') {
      size += state[size] == '\\' ? 2 : 1;
    }
  }
  connection->worker->asked = 1;
  next_number();
  if (connection->closing) {
    reopen_connection(connection);
  }
  send_answer(connection, "@STATE@", state ? state : "", size);
}

void on_response(Connection *connection) {
  connection->busy = 0;
  if (options.mode == ELICIT) {
    on_elicit(connection);
  } else if (options.mode == MRTR && !connection->worker->asked) {
    on_input_required(connection);
  } else {
    finish(connection->worker);
  }
}
