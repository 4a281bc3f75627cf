/* mcpload: a load generator for MCP servers, in one thread.
 *
 *   mcpload http   --port P --conns N --req FILE [--sids FILE]           one POST is one call
 *   mcpload elicit --port P --conns N --req FILE --ans FILE --sids FILE  a question on the stream, answered by a POST
 *   mcpload mrtr   --port P --conns N --req FILE --ans FILE              a question as a result, answered by a second
 * POST mcpload ws     --port P --conns N --inflight M --init FILE --req FILE [--path /mcp] mcpload stdio  --inflight M
 * --init FILE --req FILE [--server-cpu CORE] -- COMMAND...
 *
 * Also: --duration SECONDS, --warmup SECONDS, --expect TEXT (in every answer), --pid PID (of the server), and --calls N, which
 * ends the run after so many answers, without a warmup.
 *
 * The loop is closed: each connection, or each call in flight, is followed by the next as soon as it was answered. The
 * result is one JSON object on stdout: the calls, the wrong answers, the CPU time of the server for each call in
 * microseconds, and the milliseconds from the start of a process to its first answer.
 *
 * The files of HTTP hold a head without Content-Length, an empty line, and the body. Those of stdio and WebSocket hold
 * one message a line; a call begins after each request of --init was answered. "#########" becomes another number in
 * each call, "@SID@" the session of the connection (line n of --sids), "@RID@" the id of the server's request, and
 * "@STATE@" the requestState, as it came.
 */
#include "load.h"

#include <signal.h>

typedef struct {
  const char *name;
  const char **text;
  int *integer;
  double *number;
} Option;

static const Option known[] = {
    {"--port", .integer = &options.port},
    {"--conns", .integer = &options.connections},
    {"--inflight", .integer = &options.in_flight},
    {"--server-cpu", .integer = &options.server_core},
    {"--pid", .integer = &server},
    {"--calls", .integer = &options.calls},
    {"--duration", .number = &options.duration},
    {"--warmup", .number = &options.warmup},
    {"--req", .text = &options.request},
    {"--ans", .text = &options.answer},
    {"--init", .text = &options.opening},
    {"--sids", .text = &options.sessions},
    {"--expect", .text = &options.expect},
    {"--path", .text = &options.path},
};

static const char *modes[] = {[HTTP] = "http", [ELICIT] = "elicit", [MRTR] = "mrtr", [WS] = "ws", [STDIO] = "stdio"};

static void set(const char *name, const char *value) {
  for (size_t i = 0; value && i < sizeof known / sizeof *known; i++) {
    if (strcmp(name, known[i].name)) {
      continue;
    }
    if (known[i].text) {
      *known[i].text = value;
    } else if (known[i].integer) {
      *known[i].integer = atoi(value);
    } else {
      *known[i].number = atof(value);
    }
    return;
  }
  die(name);
}

static Mode mode_of(const char *name) {
  for (Mode mode = HTTP; mode <= STDIO; mode++) {
    if (name && !strcmp(name, modes[mode])) {
      return mode;
    }
  }
  die("the first argument is none of http, elicit, mrtr, ws and stdio");
}

int main(int count, char **arguments) {
  signal(SIGPIPE, SIG_IGN);
  options.mode = mode_of(count > 1 ? arguments[1] : NULL);
  int next = 2;
  for (; next < count && strcmp(arguments[next], "--"); next += 2) {
    set(arguments[next], arguments[next + 1]);
  }
  if (options.mode == WS || options.mode == STDIO) {
    run_links(arguments + next + 1);
  } else {
    run_http();
  }
  return 0;
}
