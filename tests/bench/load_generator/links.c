/* Lines on stdio and frames on WebSockets: many calls in flight on each link. */
#include "load.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sched.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>

#define PIPE_BYTES (1 << 20)
#define OPENING_TIMEOUT 60.0
#define EXIT_TIMEOUT 20.0
#define ID_WINDOW 512 /* where the id of a large message is: this near to its beginning or end */
#define BIG_MESSAGE 100000

typedef struct {
  int reading, writing, is_websocket;
  Buffer in, out, fragments;
  size_t sent;
  int missing; /* answers to the opening requests */
  int ready;
} Link;

static Buffer request;
static Link *links;
static int count;
static double spawned;

static void flush_link(Link *link) {
  while (link->sent < link->out.length) {
    ssize_t length = write(link->writing, link->out.data + link->sent, link->out.length - link->sent);
    if (length < 0) {
      if (errno == EAGAIN) {
        return;
      }
      die("write");
    }
    link->sent += length;
  }
  link->out.length = link->sent = 0;
}

/* Append the head of a text frame, masked by zeros. */
static void put_frame_head(Buffer *out, size_t length) {
  unsigned char head[14] = {0x81};
  size_t size = 2;
  if (length < 126) {
    head[1] = 0x80 | length;
  } else if (length < 65536) {
    head[1] = 0x80 | 126;
    head[2] = length >> 8;
    head[3] = length;
    size = 4;
  } else {
    head[1] = 0x80 | 127;
    for (int i = 0; i < 8; i++) {
      head[2 + i] = (uint64_t)length >> (56 - 8 * i);
    }
    size = 10;
  }
  append(out, head, size + 4);
}

static void put_message(Link *link, const char *data, size_t length) {
  if (link->is_websocket) {
    put_frame_head(&link->out, length);
    append(&link->out, data, length);
  } else {
    append(&link->out, data, length);
    append(&link->out, "\n", 1);
  }
}

static void call(Link *link) {
  static Buffer message;
  message.length = 0;
  append(&message, request.data, request.length);
  next_number();
  put_number_in_message(&message);
  put_message(link, message.data, message.length);
}

static void begin_calls(Link *link) {
  link->ready = 1;
  for (int i = 0; i < options.in_flight; i++) {
    call(link);
  }
  flush_link(link);
}

static void on_opening(Link *link, const char *data, size_t length) {
  if (memmem(data, length, "\"id\":", 5) && memmem(data, length, "\"result\"", 8)) {
    note_first_answer((now() - spawned) * 1e3);
    if (--link->missing <= 0) {
      begin_calls(link);
    }
  } else if (memmem(data, length, "\"error\"", 7)) {
    count_error("an error at the opening", data, length);
  }
}

/* Whether a message is the response to a call: its id has nine digits. Notifications have none. */
static int is_response(const char *data, size_t length) {
  const char *ends[] = {data, length > BIG_MESSAGE ? data + length - ID_WINDOW : data};
  size_t window = length > BIG_MESSAGE ? ID_WINDOW : length;
  for (int i = 0; i < 2; i++) {
    const char *from = ends[i], *found;
    while ((found = memmem(from, ends[i] + window - from, "\"id\":", 5))) {
      from = found + 5;
      if (strspn(from + strspn(from, " "), "0123456789") == NUMBER_DIGITS) {
        return 1;
      }
    }
  }
  return 0;
}

static void on_message(Link *link, const char *data, size_t length) {
  if (!link->ready) {
    on_opening(link, data, length);
  } else if (is_response(data, length)) {
    if (options.expect && !memmem(data, length, options.expect, strlen(options.expect))) {
      count_error("unexpected answer", data, length);
    } else {
      count_call();
    }
    call(link);
  }
}

static void parse_lines(Link *link) {
  size_t used = 0;
  char *end;
  while ((end = memchr(link->in.data + used, '\n', link->in.length - used))) {
    char *line = link->in.data + used;
    if (end > line) {
      on_message(link, line, end - line);
    }
    used = end - link->in.data + 1;
  }
  consume(&link->in, used);
}

static void on_frame(Link *link, int opcode, int final, const char *data, size_t length) {
  if (opcode == 9) {
    append(&link->out, "\x8a\x80\0\0\0\0", 6);
  } else if (opcode == 8) {
    count_error("the server closed the WebSocket", data, length);
  } else if (opcode <= 2 && final && opcode) {
    on_message(link, data, length);
  } else if (opcode <= 2) {
    append(&link->fragments, data, length);
    if (final) {
      on_message(link, link->fragments.data, link->fragments.length);
      link->fragments.length = 0;
    }
  }
}

static void parse_frames(Link *link) {
  size_t used = 0;
  for (;;) {
    unsigned char *data = (unsigned char *)link->in.data + used;
    size_t length = link->in.length - used, size = 2;
    if (length < 2) {
      break;
    }
    uint64_t payload = data[1] & 127;
    size += payload == 126 ? 2 : payload == 127 ? 8 : 0;
    if (length < size) {
      break;
    }
    if (size > 2) {
      payload = 0;
      for (size_t i = 2; i < size; i++) {
        payload = payload << 8 | data[i];
      }
    }
    if (length < size + payload) {
      break;
    }
    on_frame(link, data[0] & 15, data[0] >> 7, (char *)data + size, payload);
    used += size + payload;
  }
  consume(&link->in, used);
}

static void read_link(Link *link) {
  static char data[READ_BYTES];
  ssize_t length;
  do {
    length = read(link->reading, data, sizeof data);
    if (length < 0 && errno == EAGAIN) {
      return;
    }
    if (length <= 0) {
      die(length ? "read" : "the server ended");
    }
    append(&link->in, data, length);
    if (link->is_websocket) {
      parse_frames(link);
    } else {
      parse_lines(link);
    }
    flush_link(link);
  } while (length == (ssize_t)sizeof data);
}

static _Noreturn void become_server(int in, int out, char **command) {
  if (options.server_core >= 0) {
    cpu_set_t cores;
    CPU_ZERO(&cores);
    CPU_SET(options.server_core, &cores);
    sched_setaffinity(0, sizeof cores, &cores);
  }
  dup2(in, 0);
  dup2(out, 1);
  execvp(command[0], command);
  die(command[0]);
}

static void open_pipes(Link *link, char **command) {
  int in[2], out[2];
  if (pipe2(in, O_CLOEXEC) || pipe2(out, O_CLOEXEC)) {
    die("pipe");
  }
  fcntl(in[1], F_SETPIPE_SZ, PIPE_BYTES);
  fcntl(out[1], F_SETPIPE_SZ, PIPE_BYTES);
  server = fork();
  if (!server) {
    become_server(in[0], out[1], command);
  }
  close(in[0]);
  close(out[1]);
  link->writing = in[1];
  link->reading = out[0];
}

static void open_websocket(Link *link) {
  link->is_websocket = 1;
  int fd = link->reading = link->writing = socket(AF_INET, SOCK_STREAM, 0);
  struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(options.port)};
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  if (connect(fd, (void *)&address, sizeof address)) {
    die("connect");
  }
  int on = 1;
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  char head[1024];
  int size = snprintf(head, sizeof head,
                      "GET %s HTTP/1.1\r\nHost: 127.0.0.1:%d\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
                      "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n"
                      "Sec-WebSocket-Protocol: mcp\r\n\r\n",
                      options.path, options.port);
  if (write(fd, head, size) != size) {
    die("write");
  }
  Buffer response = {0};
  char byte;
  while (read(fd, &byte, 1) == 1) {
    append(&response, &byte, 1);
    if (response.length > 4 && !memcmp(response.data + response.length - 4, "\r\n\r\n", 4)) {
      break;
    }
  }
  if (!response.length || !strstr(response.data, " 101 ")) {
    fprintf(stderr, "%s\n", response.length ? response.data : "");
    die("no upgrade");
  }
  free(response.data);
}

/* Send the opening messages, and remember how many answers there will be. */
static void open_link(Link *link, const Buffer *opening, char **command) {
  if (options.mode == STDIO) {
    open_pipes(link, command);
  } else {
    open_websocket(link);
  }
  fcntl(link->reading, F_SETFL, O_NONBLOCK);
  fcntl(link->writing, F_SETFL, O_NONBLOCK);
  watch(link->reading, link, EPOLLIN, EPOLL_CTL_ADD);
  for (const char *line = opening->data; *line;) {
    size_t length = strcspn(line, "\n");
    link->missing += memmem(line, length, "\"id\"", 4) != NULL;
    put_message(link, line, length);
    line += length + (line[length] == '\n');
  }
  flush_link(link);
}

static int all_ready(void) {
  for (int i = 0; i < count; i++) {
    if (!links[i].ready) {
      return 0;
    }
  }
  return 1;
}

static void turn(void) {
  struct epoll_event events[64];
  int found = epoll_wait(poller, events, 64, 20);
  for (int i = 0; i < found; i++) {
    read_link(events[i].data.ptr);
  }
  for (int i = 0; i < count; i++) {
    flush_link(&links[i]);
  }
}

/* Close stdin, and read what the server still writes, so that it can end. */
static void end_server(void) {
  static char data[READ_BYTES];
  close(links[0].writing);
  double deadline = now() + EXIT_TIMEOUT;
  while (!waitpid(server, NULL, WNOHANG)) {
    if (now() > deadline) {
      kill(server, SIGKILL);
      waitpid(server, NULL, 0);
      return;
    }
    while (read(links[0].reading, data, sizeof data) > 0) {
    }
    usleep(5000);
  }
}

void run_links(char **command) {
  request = read_file(options.request);
  request.length = strcspn(request.data, "\n");
  Buffer opening = read_file(options.opening);
  poller = epoll_create1(0);
  count = options.mode == STDIO ? 1 : options.connections;
  links = calloc(count, sizeof *links);
  spawned = now();
  for (int i = 0; i < count; i++) {
    open_link(&links[i], &opening, command);
  }
  while (!all_ready()) {
    turn();
    if (now() > spawned + OPENING_TIMEOUT) {
      die("the opening took too long");
    }
  }
  started = now();
  while (!over()) {
    turn();
  }
  report();
  if (options.mode == STDIO) {
    end_server();
  }
}
