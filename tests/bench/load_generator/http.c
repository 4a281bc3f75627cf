/* HTTP/1.1 connections: writing requests, parsing responses, and the loop. */
#include "http.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#define CONNECT_TRIES 50
#define CONNECT_PAUSE 20000 /* microseconds */
#define MANY_PARSED 65536

void open_connection(Connection *connection) {
  connection->fd = socket(AF_INET, SOCK_STREAM, 0);
  if (connection->fd < 0) {
    die("socket");
  }
  struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(options.port)};
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  int tries = 0;
  while (connect(connection->fd, (void *)&address, sizeof address)) {
    if (++tries > CONNECT_TRIES) {
      die("connect");
    }
    usleep(CONNECT_PAUSE);
  }
  int on = 1;
  setsockopt(connection->fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  fcntl(connection->fd, F_SETFL, O_NONBLOCK);
  watch(connection->fd, connection, EPOLLIN, EPOLL_CTL_ADD);
  connection->in.length = connection->parsed = 0;
  connection->out.length = connection->sent = 0;
  connection->state = HEAD;
  connection->busy = connection->closing = 0;
}

void reopen_connection(Connection *connection) {
  close(connection->fd);
  open_connection(connection);
}

void flush_connection(Connection *connection) {
  while (connection->sent < connection->out.length) {
    size_t left = connection->out.length - connection->sent;
    ssize_t length = write(connection->fd, connection->out.data + connection->sent, left);
    if (length < 0 && errno == EAGAIN) {
      watch(connection->fd, connection, EPOLLIN | EPOLLOUT, EPOLL_CTL_MOD);
      return;
    }
    if (length < 0) {
      count_error("write", strerror(errno), 30);
      return;
    }
    connection->sent += length;
  }
  if (connection->sent) {
    connection->out.length = connection->sent = 0;
    watch(connection->fd, connection, EPOLLIN, EPOLL_CTL_MOD);
  }
}

/* Take the head of a response; returns whether it was whole. */
static int parse_head(Connection *connection, char *data, size_t length) {
  char *end = length >= 4 ? memmem(data, length, "\r\n\r\n", 4) : NULL;
  if (!end) {
    return 0;
  }
  *end = 0;
  connection->status = length > 12 ? atoi(data + 9) : 0;
  connection->closing = strcasestr(data, "\r\nconnection: close") != NULL;
  char *size = strcasestr(data, "\r\ncontent-length:");
  connection->parsed += end - data + 4;
  if (strcasestr(data, "\r\ntransfer-encoding:")) {
    connection->state = CHUNK_SIZE;
    return 1;
  }
  connection->left = size ? strtoul(size + 17, NULL, 10) : 0;
  connection->state = BODY;
  if (!connection->left) {
    connection->state = HEAD;
    on_response(connection);
  }
  return 1;
}

/* Take some of a body or a chunk. */
static void parse_data(Connection *connection, const char *data, size_t length) {
  size_t taken = length < connection->left ? length : connection->left;
  append(&connection->body, data, taken);
  connection->parsed += taken;
  connection->left -= taken;
  if (connection->left) {
    return;
  }
  int whole = connection->state == BODY;
  connection->state = whole ? HEAD : CHUNK_END;
  on_body(connection);
  if (whole) {
    on_response(connection);
  }
}

static int parse_chunk_size(Connection *connection, const char *data, size_t length) {
  char *end = length >= 3 ? memmem(data, length, "\r\n", 2) : NULL;
  if (!end) {
    return 0;
  }
  connection->left = strtoul(data, NULL, 16);
  connection->parsed += end - data + 2;
  connection->state = connection->left ? CHUNK : LAST_CHUNK;
  return 1;
}

/* Take the line end after a chunk, or after the last one, where the response ends. */
static int parse_line_end(Connection *connection, size_t length) {
  if (length < 2) {
    return 0;
  }
  connection->parsed += 2;
  if (connection->state == CHUNK_END) {
    connection->state = CHUNK_SIZE;
  } else {
    connection->state = HEAD;
    on_response(connection);
  }
  return 1;
}

/* Take the next part of a response; returns whether there was one. */
static int parse_next(Connection *connection) {
  char *data = connection->in.data + connection->parsed;
  size_t length = connection->in.length - connection->parsed;
  switch (connection->state) {
  case HEAD:
    return parse_head(connection, data, length);
  case BODY:
  case CHUNK:
    if (length) {
      parse_data(connection, data, length);
    }
    return length > 0;
  case CHUNK_SIZE:
    return parse_chunk_size(connection, data, length);
  default:
    return parse_line_end(connection, length);
  }
}

static void parse(Connection *connection) {
  while (connection->parsed < connection->in.length && parse_next(connection)) {
  }
  if (connection->parsed == connection->in.length) {
    connection->parsed = connection->in.length = 0;
  } else if (connection->parsed > MANY_PARSED) {
    consume(&connection->in, connection->parsed);
    connection->parsed = 0;
  }
}

/* Open the connection again; the call that was on it is made again. */
static void restart(Connection *connection, const char *why) {
  int was_busy = connection->busy;
  if (was_busy) {
    count_error(why, connection->body.data, connection->body.length);
  }
  reopen_connection(connection);
  if (was_busy && !connection->for_answers) {
    start_call(connection->worker);
  }
}

static void read_connection(Connection *connection) {
  static char data[READ_BYTES];
  ssize_t length;
  do {
    length = read(connection->fd, data, sizeof data);
    if (length < 0 && errno == EAGAIN) {
      return;
    }
    if (length <= 0) {
      restart(connection, length ? strerror(errno) : "the server closed the connection");
      return;
    }
    append(&connection->in, data, length);
    parse(connection);
  } while (length == (ssize_t)sizeof data);
}

static Worker *open_workers(void) {
  Worker *workers = calloc(options.connections, sizeof *workers);
  FILE *sessions = options.sessions ? fopen(options.sessions, "r") : NULL;
  for (int i = 0; i < options.connections; i++) {
    char session[sizeof workers->session] = "";
    if (sessions && !fgets(session, sizeof session, sessions)) {
      die("too few sessions");
    }
    session[strcspn(session, "\r\n")] = 0;
    prepare_worker(&workers[i], session);
    for (int j = 0; j < (options.mode == ELICIT ? 2 : 1); j++) {
      workers[i].connections[j].worker = &workers[i];
      workers[i].connections[j].for_answers = j;
      open_connection(&workers[i].connections[j]);
    }
  }
  return workers;
}

void run_http(void) {
  poller = epoll_create1(0);
  read_templates();
  Worker *workers = open_workers();
  started = now();
  for (int i = 0; i < options.connections; i++) {
    start_call(&workers[i]);
  }
  struct epoll_event events[256];
  while (!over()) {
    int count = epoll_wait(poller, events, 256, 50);
    for (int i = 0; i < count; i++) {
      if (events[i].events & EPOLLOUT) {
        flush_connection(events[i].data.ptr);
      }
      if (events[i].events & (EPOLLIN | EPOLLHUP | EPOLLERR)) {
        read_connection(events[i].data.ptr);
      }
    }
  }
  report();
}
