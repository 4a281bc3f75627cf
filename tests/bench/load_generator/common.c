/* Buffers, the clock, the counts, and the numbers of calls. */
#include "load.h"

#include <time.h>

#define SHOWN_ERRORS 3
#define SHOWN_BYTES 600
#define MOST_ERRORS 2000

Options options = {.connections = 1, .in_flight = 1, .server_core = -1, .duration = 3, .warmup = 1, .path = "/mcp"};
pid_t server;
double started;
int poller;

static long calls, errors;
static int measuring;
static double measured_from, cpu_before, cpu_after, first_answer = -1;
static char number[NUMBER_DIGITS + 1];

_Noreturn void die(const char *what) {
  fprintf(stderr, "mcpload: %s (%s)\n", what, strerror(errno));
  exit(2);
}

double now(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return time.tv_sec + time.tv_nsec * 1e-9;
}

void append(Buffer *buffer, const void *data, size_t length) {
  if (buffer->length + length + 1 > buffer->capacity) {
    buffer->capacity = (buffer->length + length + 1) * 2;
    buffer->data = realloc(buffer->data, buffer->capacity);
    if (!buffer->data) {
      die("out of memory");
    }
  }
  memcpy(buffer->data + buffer->length, data, length);
  buffer->length += length;
  buffer->data[buffer->length] = 0;
}

void append_text(Buffer *buffer, const char *text) {
  append(buffer, text, strlen(text));
}

void append_replaced(Buffer *buffer, const char *data, size_t length, const char *key, const char *value, size_t size) {
  const char *end = data + length, *found;
  while ((found = memmem(data, end - data, key, strlen(key)))) {
    append(buffer, data, found - data);
    append(buffer, value, size);
    data = found + strlen(key);
  }
  append(buffer, data, end - data);
}

void consume(Buffer *buffer, size_t length) {
  if (!length) {
    return; /* of a large message that is not whole yet */
  }
  memmove(buffer->data, buffer->data + length, buffer->length - length);
  buffer->length -= length;
}

Buffer read_file(const char *name) {
  Buffer buffer = {0};
  FILE *file = fopen(name, "rb");
  if (!file) {
    die(name);
  }
  char part[READ_BYTES];
  size_t length;
  while ((length = fread(part, 1, sizeof part, file)) > 0) {
    append(&buffer, part, length);
  }
  fclose(file);
  append(&buffer, "", 0);
  return buffer;
}

void count_call(void) {
  calls += measuring;
}

void count_error(const char *why, const char *data, size_t length) {
  if (errors++ < SHOWN_ERRORS) {
    fprintf(stderr, "mcpload: %s: %.*s\n", why, (int)(length > SHOWN_BYTES ? SHOWN_BYTES : length), data ? data : "");
  }
  if (errors > MOST_ERRORS) {
    fprintf(stderr, "mcpload: too many errors\n");
    exit(3);
  }
}

void note_first_answer(double milliseconds) {
  if (first_answer < 0) {
    first_answer = milliseconds;
  }
}

/* The CPU time of the server with all its threads, in seconds. */
static double server_cpu(void) {
  clockid_t clock;
  struct timespec time;
  if (clock_getcpuclockid(server, &clock) || clock_gettime(clock, &time)) {
    die("the CPU time of the server");
  }
  return time.tv_sec + time.tv_nsec * 1e-9;
}

/* Whether the run is over; begins to measure after the warmup, or at once if the calls are counted. */
int over(void) {
  double time = now();
  if (options.calls && measuring && calls >= options.calls) {
    cpu_after = server_cpu();
    return 1;
  }
  if (!measuring && (options.calls || time >= started + options.warmup)) {
    measuring = 1;
    measured_from = now();
    cpu_before = server_cpu();
  }
  if (measuring && time >= measured_from + options.duration) {
    if (options.calls) {
      die("fewer calls than it had to make");
    }
    cpu_after = server_cpu();
    return 1;
  }
  if (time > started + options.warmup + options.duration + STALLED) {
    die("stalled");
  }
  return 0;
}

void report(void) {
  double cpu = calls ? (cpu_after - cpu_before) * 1e6 / calls : 0;
  printf("{\"calls\": %ld, \"errors\": %ld, \"cpu_us\": %.3f, \"first_ms\": %.2f}\n", calls, errors, cpu, first_answer);
}

void next_number(void) {
  static uint32_t calls_made;
  snprintf(number, sizeof number, "%09u", 100000000u + calls_made++ % 800000000u);
}

void put_number(char *data, size_t length) {
  char *end = data + length;
  while ((data = memmem(data, end - data, NUMBER, NUMBER_DIGITS))) {
    memcpy(data, number, NUMBER_DIGITS);
    data += NUMBER_DIGITS;
  }
}

void put_number_in_message(Buffer *message) {
  put_number(message->data, message->length < LARGE ? message->length : NUMBERS_OF_LARGE);
}

void watch(int fd, void *owner, uint32_t events, int operation) {
  struct epoll_event event = {.events = events, .data.ptr = owner};
  if (epoll_ctl(poller, operation, fd, &event)) {
    die("epoll_ctl");
  }
}
