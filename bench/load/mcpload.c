/* mcpload: a small single-threaded epoll load generator for MCP servers.
 *
 *   mcpload http   --port P --conns N --req FILE [--sids FILE]       one POST = one call
 *   mcpload elicit --port P --conns N --req FILE --ans FILE          POST -> SSE elicitation/create -> POST answer
 *   mcpload mrtr   --port P --conns N --req FILE --ans FILE          POST -> input_required -> POST retry
 *   mcpload ws     --port P --conns N --inflight M --init FILE --req FILE [--path /mcp]
 *   mcpload stdio  --inflight M --init FILE --req FILE -- CMD ARGS...
 *
 * Common: --duration S --warmup S --expect STR --pid PID (server, for CPU and RSS)
 *         --server-cpu K (stdio: pin the child)
 *
 * Closed loop: each connection (or each in-flight slot) issues its next call as soon as
 * the previous one has been answered.  One JSON object on stdout is the result.
 *
 * FILE formats. http: HTTP head without Content-Length, an empty line, then the body.
 * stdio/ws: one JSON message per line (init: all lines are sent; a line holding "id" is
 * waited for).  "#########" (nine) becomes a fresh 9-digit number per call, "@SID@" the
 * session id of the connection (line n of --sids), "@RID@" the id of the server's request,
 * "@STATE@" the requestState (JSON-escaped, as received).
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return t.tv_sec + t.tv_nsec * 1e-9;
}
static void die(const char *m) {
  fprintf(stderr, "mcpload: %s (%s)\n", m, strerror(errno));
  exit(2);
}

typedef struct {
  char *p;
  size_t n, cap;
} Buf;
static void bput(Buf *b, const void *d, size_t n) {
  if (b->n + n + 1 > b->cap) {
    b->cap = (b->n + n + 1) * 2;
    b->p = realloc(b->p, b->cap);
    if (!b->p) {
      die("oom");
    }
  }
  memcpy(b->p + b->n, d, n);
  b->n += n;
  b->p[b->n] = 0;
}
static void bputs(Buf *b, const char *s) {
  bput(b, s, strlen(s));
}
static Buf slurp(const char *f) {
  Buf b = {0};
  FILE *h = fopen(f, "rb");
  if (!h) {
    die(f);
  }
  char t[65536];
  size_t k;
  while ((k = fread(t, 1, sizeof t, h)) > 0) {
    bput(&b, t, k);
  }
  fclose(h);
  bput(&b, "", 0);
  return b;
}
static void subst(Buf *out, const char *s, size_t n, const char *key, const char *val, size_t vn) {
  size_t kn = strlen(key);
  const char *e = s + n;
  while (s < e) {
    const char *q = memmem(s, e - s, key, kn);
    if (!q) {
      bput(out, s, e - s);
      break;
    }
    bput(out, s, q - s);
    bput(out, val, vn);
    s = q + kn;
  }
}

/* options */
static int port, conns = 1, inflight = 1, srvcpu = -1;
static pid_t spid;
static double duration = 3, warmup = 1;
static const char *f_req, *f_ans, *f_init, *f_sids, *expect, *path = "/mcp";
static enum { HTTP, ELICIT, MRTR, WS, STDIO } mode;

/* results */
static float *lat;
static size_t nlat, caplat;
static long errors;
static unsigned long long rxbytes;
static long calls;
static double t_start, t_m0, t_m1;
static int measuring;
static void record(double d) {
  if (!measuring) {
    return;
  }
  calls++;
  if (nlat == caplat) {
    caplat = caplat ? caplat * 2 : 65536;
    lat = realloc(lat, caplat * sizeof *lat);
  }
  lat[nlat++] = (float)(d * 1e6);
}
static void bad(const char *why, const char *p, size_t n) {
  if (errors++ < 3) {
    fprintf(stderr, "mcpload: %s: %.*s\n", why, (int)(n > 600 ? 600 : n), p ? p : "");
  }
  if (errors > 2000) {
    fprintf(stderr, "mcpload: too many errors\n");
    exit(3);
  }
}
static double pcpu(pid_t p) {
  char f[64], b[1024];
  snprintf(f, sizeof f, "/proc/%d/stat", p);
  FILE *h = fopen(f, "r");
  if (!h) {
    return 0;
  }
  size_t k = fread(b, 1, sizeof b - 1, h);
  b[k] = 0;
  fclose(h);
  char *q = strrchr(b, ')');
  if (!q) {
    return 0;
  }
  unsigned long u = 0, s = 0;
  sscanf(q + 2, "%*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %lu %lu", &u, &s);
  return (double)(u + s) / sysconf(_SC_CLK_TCK);
}
/* finer CPU clock: sum of schedstat over the threads (ns) */
static double pcpu_ns(pid_t p) {
  clockid_t c;
  struct timespec t;
  if (clock_getcpuclockid(p, &c) == 0 && clock_gettime(c, &t) == 0) {
    return t.tv_sec + t.tv_nsec * 1e-9;
  }
  return pcpu(p);
}
static long pmem(pid_t p, const char *k) {
  char f[64], l[256];
  snprintf(f, sizeof f, "/proc/%d/status", p);
  FILE *h = fopen(f, "r");
  long v = 0;
  if (!h) {
    return 0;
  }
  while (fgets(l, sizeof l, h)) {
    if (!strncmp(l, k, strlen(k))) {
      sscanf(l + strlen(k), ": %ld", &v);
      break;
    }
  }
  fclose(h);
  return v;
}
static int cmpf(const void *a, const void *b) {
  float x = *(float *)a, y = *(float *)b;
  return x < y ? -1 : x > y;
}
static double cpu0, cpu1, lcpu0, lcpu1;
static double first_ms = -1, init_ms = -1;
static double selfcpu(void) {
  struct rusage r;
  getrusage(RUSAGE_SELF, &r);
  return r.ru_utime.tv_sec + r.ru_stime.tv_sec + (r.ru_utime.tv_usec + r.ru_stime.tv_usec) * 1e-6;
}
static void report(void) {
  qsort(lat, nlat, sizeof *lat, cmpf);
  double s = 0;
  for (size_t i = 0; i < nlat; i++) {
    s += lat[i];
  }
  double w = t_m1 - t_m0;
  printf("{\"calls\":%ld,\"secs\":%.4f,\"rps\":%.2f,\"p50_us\":%.1f,\"p99_us\":%.1f,\"mean_us\":%.1f,\"errors\":%ld,"
         "\"cpu_s\":%.4f,\"cpu_ms_per_1k\":%.2f,\"rss_kb\":%ld,\"hwm_kb\":%ld,\"load_cpu_s\":%.4f,\"rx_bytes\":%llu,"
         "\"first_ms\":%.2f,\"init_ms\":%.2f}\n",
         calls, w, calls / w, nlat ? lat[nlat / 2] : 0, nlat ? lat[(size_t)(nlat * 0.99)] : 0, nlat ? s / nlat : 0,
         errors, cpu1 - cpu0, calls ? (cpu1 - cpu0) * 1e6 / calls : 0, pmem(spid, "VmRSS"), pmem(spid, "VmHWM"),
         lcpu1 - lcpu0, rxbytes, first_ms, init_ms);
}
/* returns 1 when the run is over */
static int tick(void) {
  double t = now();
  if (!measuring && t >= t_start + warmup) {
    measuring = 1;
    t_m0 = now();
    cpu0 = pcpu_ns(spid);
    lcpu0 = selfcpu();
    rxbytes = 0;
  }
  if (measuring && t >= t_m0 + duration) {
    cpu1 = pcpu_ns(spid);
    lcpu1 = selfcpu();
    t_m1 = now();
    return 1;
  }
  return 0;
}

/* id source: nine digits, patched in place */
static uint32_t seq;
static char digits[16];
static uint32_t next_id(void) {
  uint32_t v = 100000000u + (seq++ % 800000000u);
  snprintf(digits, sizeof digits, "%09u", v);
  return v;
}
static void patch(char *p, size_t n) {
  char *e = p + n, *q;
  while ((q = memmem(p, e - p, "#########", 9))) {
    memcpy(q, digits, 9);
    p = q + 9;
  }
}

/* ---------------------------------------------------------------- HTTP */
typedef struct Conn Conn;
typedef struct Worker Worker;
enum { S_HEAD, S_CL, S_CSIZE, S_CDATA, S_CCRLF, S_TRAIL };
struct Conn {
  int fd;
  Worker *w;
  int which;
  Buf out;
  size_t off;
  Buf in;
  size_t used;
  Buf body;
  int st;
  size_t left;
  int status;
  int busy;
  int closing;
};
struct Worker {
  Conn c[2];
  char sid[256];
  double t0;
  int phase;
  size_t scanned;
  char tok[32];
};
static int ep;
static void conn_open(Conn *c) {
  c->fd = socket(AF_INET, SOCK_STREAM, 0);
  if (c->fd < 0) {
    die("socket");
  }
  struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons(port)};
  a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  int tries = 0;
  while (connect(c->fd, (void *)&a, sizeof a)) {
    if (++tries > 50) {
      die("connect");
    }
    usleep(20000);
  }
  int one = 1;
  setsockopt(c->fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
  fcntl(c->fd, F_SETFL, O_NONBLOCK);
  struct epoll_event e = {.events = EPOLLIN, .data.ptr = c};
  epoll_ctl(ep, EPOLL_CTL_ADD, c->fd, &e);
  c->in.n = c->used = 0;
  c->out.n = c->off = 0;
  c->st = S_HEAD;
  c->busy = 0;
  c->closing = 0;
}
static void conn_reopen(Conn *c) {
  close(c->fd);
  conn_open(c);
}
static void conn_flush(Conn *c) {
  while (c->off < c->out.n) {
    ssize_t k = write(c->fd, c->out.p + c->off, c->out.n - c->off);
    if (k < 0) {
      if (errno == EAGAIN) {
        struct epoll_event e = {.events = EPOLLIN | EPOLLOUT, .data.ptr = c};
        epoll_ctl(ep, EPOLL_CTL_MOD, c->fd, &e);
        return;
      }
      bad("write", strerror(errno), 30);
      return;
    }
    c->off += k;
  }
  if (c->off) {
    c->out.n = c->off = 0;
    struct epoll_event e = {.events = EPOLLIN, .data.ptr = c};
    epoll_ctl(ep, EPOLL_CTL_MOD, c->fd, &e);
  }
}
static Buf T_req, T_ans;
static size_t req_split, ans_split;
static size_t split_of(Buf *b) {
  char *q = memmem(b->p, b->n, "\n\n", 2);
  if (!q) {
    die("template has no empty line");
  }
  return q - b->p;
}
static void send_tpl(Conn *c, Buf *t, size_t sp, const char *k, const char *v, size_t vn) {
  Buf body = {0};
  static Buf head;
  head.n = 0;
  const char *bp = t->p + sp + 2;
  size_t bn = t->n - sp - 2;
  while (bn && bp[bn - 1] == '\n') {
    bn--;
  }
  if (k) {
    subst(&body, bp, bn, k, v, vn);
  } else {
    bput(&body, bp, bn);
  }
  patch(body.p, body.n);
  for (size_t i = 0; i < sp; i++) {
    if (t->p[i] == '\n') {
      bputs(&head, "\r\n");
    } else {
      bput(&head, t->p + i, 1);
    }
  }
  subst(&c->out, head.p, head.n, "@SID@", c->w->sid, strlen(c->w->sid));
  char l[64];
  snprintf(l, sizeof l, "\r\nContent-Length: %zu\r\n\r\n", body.n);
  bputs(&c->out, l);
  bput(&c->out, body.p, body.n);
  free(body.p);
  c->busy = 1;
  c->body.n = 0;
  conn_flush(c);
}
/* fast path: the request is prebuilt per worker, only digits change */
typedef struct {
  Buf full;
} Pre;
static Pre *pre;
static Worker *W;
static void start_call(Worker *w) {
  next_id();
  w->t0 = now();
  w->phase = 0;
  w->scanned = 0;
  Conn *c = &w->c[0];
  size_t i = w - W;
  if (!pre[i].full.n) {
    Buf save = c->out;
    Buf z = {0};
    (void)save;
    c->out = z;
    c->off = 0;
    /* build once with the placeholder kept */
    char keep[16];
    memcpy(keep, digits, 10);
    memcpy(digits, "#########", 10);
    Buf body = {0};
    const char *bp = T_req.p + req_split + 2;
    size_t bn = T_req.n - req_split - 2;
    while (bn && bp[bn - 1] == '\n') {
      bn--;
    }
    bput(&body, bp, bn);
    Buf head = {0};
    for (size_t j = 0; j < req_split; j++) {
      if (T_req.p[j] == '\n') {
        bputs(&head, "\r\n");
      } else {
        bput(&head, T_req.p + j, 1);
      }
    }
    subst(&pre[i].full, head.p, head.n, "@SID@", w->sid, strlen(w->sid));
    char l[64];
    snprintf(l, sizeof l, "\r\nContent-Length: %zu\r\n\r\n", body.n);
    bputs(&pre[i].full, l);
    bput(&pre[i].full, body.p, body.n);
    free(body.p);
    free(head.p);
    memcpy(digits, keep, 10);
  }
  c->out.n = c->off = 0;
  bput(&c->out, pre[i].full.p, pre[i].full.n);
  if (c->out.n < 65536) {
    patch(c->out.p, c->out.n);
  } else {
    patch(c->out.p, 2048 < c->out.n ? 2048 : c->out.n);
  }
  memcpy(w->tok, digits, 10);
  c->busy = 1;
  c->body.n = 0;
  conn_flush(c);
}
static void finish(Worker *w) {
  Conn *c = &w->c[0];
  if (c->status != 200) {
    bad("status", c->body.p, c->body.n);
  } else if (expect && !memmem(c->body.p, c->body.n, expect, strlen(expect))) {
    bad("unexpected body", c->body.p, c->body.n);
  } else {
    record(now() - w->t0);
  }
  if (c->closing) {
    conn_reopen(c);
  }
  start_call(w);
}
static void on_body(Conn *c) {
  Worker *w = c->w;
  if (mode != ELICIT || c->which != 0 || w->phase != 0) {
    return;
  }
  char *q = memmem(c->body.p + w->scanned, c->body.n - w->scanned, "\"elicitation/create\"", 20);
  if (!q) {
    return;
  }
  char *e = memchr(q, '\n', c->body.p + c->body.n - q);
  if (!e) {
    return;
  }
  char *s = q;
  while (s > c->body.p && s[-1] != '\n') {
    s--;
  }
  char *id = memmem(s, e - s, "\"id\":", 5);
  if (!id) {
    bad("no id", s, e - s);
    return;
  }
  id += 5;
  while (*id == ' ') {
    id++;
  }
  char *z = id;
  while (z < e && *z != ',' && *z != '}') {
    z++;
  }
  w->phase = 1;
  char rid[128];
  size_t n = z - id;
  if (n > 120) {
    n = 120;
  }
  memcpy(rid, id, n);
  w->scanned = c->body.n;
  send_tpl(&w->c[1], &T_ans, ans_split, "@RID@", rid, n);
}
static void on_done(Conn *c) {
  Worker *w = c->w;
  c->busy = 0;
  if (mode == HTTP) {
    finish(w);
    return;
  }
  if (mode == ELICIT) {
    if (c->which == 1) {
      if (c->status != 202 && c->status != 200) {
        bad("answer status", c->body.p, c->body.n);
      }
      if (c->closing) {
        conn_reopen(c);
      }
    } else if (w->phase == 0) {
      bad("no elicitation seen", c->body.p, c->body.n);
      if (c->closing) {
        conn_reopen(c);
      }
      start_call(w);
      return;
    }
    if (!w->c[0].busy && !w->c[1].busy) {
      finish(w);
    }
    return;
  }
  /* MRTR */
  if (w->phase == 0) {
    if (c->status != 200) {
      bad("status", c->body.p, c->body.n);
      start_call(w);
      return;
    }
    char *q = memmem(c->body.p, c->body.n, "\"requestState\":\"", 16);
    char *v = "";
    size_t n = 0;
    if (!memmem(c->body.p, c->body.n, "input_required", 14)) {
      bad("no input_required", c->body.p, c->body.n);
      start_call(w);
      return;
    }
    if (q) {
      v = q + 16;
      while (v[n] && v[n] != '"') {
        n += v[n] == '\\' ? 2 : 1;
      }
    }
    char *copy = malloc(n + 1);
    memcpy(copy, v, n);
    copy[n] = 0;
    w->phase = 1;
    next_id();
    if (c->closing) {
      conn_reopen(c);
    }
    send_tpl(c, &T_ans, ans_split, "@STATE@", copy, n);
    free(copy);
  } else {
    finish(w);
  }
}
static void parse(Conn *c) {
  for (;;) {
    char *p = c->in.p + c->used;
    size_t n = c->in.n - c->used;
    if (c->st == S_HEAD) {
      char *q = n >= 4 ? memmem(p, n, "\r\n\r\n", 4) : NULL;
      if (!q) {
        break;
      }
      *q = 0;
      c->status = n > 12 ? atoi(p + 9) : 0;
      c->closing = strcasestr(p, "\r\nconnection: close") != NULL;
      char *cl = strcasestr(p, "\r\ncontent-length:"), *te = strcasestr(p, "\r\ntransfer-encoding:");
      c->used += q - p + 4;
      if (te) {
        c->st = S_CSIZE;
      } else if (cl) {
        c->left = strtoul(cl + 17, NULL, 10);
        c->st = S_CL;
      } else {
        c->left = 0;
        c->st = S_CL;
      }
      if (c->st == S_CL && c->left == 0) {
        c->st = S_HEAD;
        on_done(c);
      }
    } else if (c->st == S_CL || c->st == S_CDATA) {
      if (!n) {
        break;
      }
      size_t k = n < c->left ? n : c->left;
      bput(&c->body, p, k);
      c->used += k;
      c->left -= k;
      if (!c->left) {
        if (c->st == S_CL) {
          c->st = S_HEAD;
          on_body(c);
          on_done(c);
        } else {
          c->st = S_CCRLF;
          on_body(c);
        }
      }
    } else if (c->st == S_CSIZE) {
      char *q = n >= 3 ? memmem(p, n, "\r\n", 2) : NULL;
      if (!q) {
        break;
      }
      c->left = strtoul(p, NULL, 16);
      c->used += q - p + 2;
      c->st = c->left ? S_CDATA : S_TRAIL;
    } else if (c->st == S_CCRLF) {
      if (n < 2) {
        break;
      }
      c->used += 2;
      c->st = S_CSIZE;
    } else {
      if (n < 2) {
        break;
      }
      c->used += 2;
      c->st = S_HEAD;
      on_done(c);
    }
    if (c->used == c->in.n) {
      c->used = c->in.n = 0;
      if (c->st == S_HEAD) {
        break;
      }
    }
  }
  if (c->used > 65536) {
    memmove(c->in.p, c->in.p + c->used, c->in.n - c->used);
    c->in.n -= c->used;
    c->used = 0;
  }
}
static void run_http(void) {
  T_req = slurp(f_req);
  req_split = split_of(&T_req);
  if (f_ans) {
    T_ans = slurp(f_ans);
    ans_split = split_of(&T_ans);
  }
  W = calloc(conns, sizeof *W);
  pre = calloc(conns, sizeof *pre);
  ep = epoll_create1(0);
  FILE *sf = f_sids ? fopen(f_sids, "r") : NULL;
  for (int i = 0; i < conns; i++) {
    if (sf) {
      if (!fgets(W[i].sid, sizeof W[i].sid, sf)) {
        die("too few session ids");
      }
      W[i].sid[strcspn(W[i].sid, "\r\n")] = 0;
    }
    for (int j = 0; j < (mode == ELICIT ? 2 : 1); j++) {
      W[i].c[j].w = &W[i];
      W[i].c[j].which = j;
      conn_open(&W[i].c[j]);
    }
  }
  t_start = now();
  for (int i = 0; i < conns; i++) {
    start_call(&W[i]);
  }
  static char rb[262144];
  struct epoll_event ev[256];
  for (;;) {
    int k = epoll_wait(ep, ev, 256, 50);
    if (tick()) {
      break;
    }
    if (now() > t_start + warmup + duration + 20) {
      die("stalled");
    }
    for (int i = 0; i < k; i++) {
      Conn *c = ev[i].data.ptr;
      if (ev[i].events & EPOLLOUT) {
        conn_flush(c);
      }
      if (ev[i].events & (EPOLLIN | EPOLLHUP | EPOLLERR)) {
        for (;;) {
          ssize_t r = read(c->fd, rb, sizeof rb);
          if (r < 0) {
            if (errno != EAGAIN) {
              bad("read", strerror(errno), 30);
              conn_reopen(c);
              if (c->which == 0) {
                start_call(c->w);
              }
            }
            break;
          }
          if (r == 0) {
            int b = c->busy;
            if (b) {
              bad("closed by server", c->body.p, c->body.n);
            }
            conn_reopen(c);
            if (b && c->which == 0) {
              start_call(c->w);
            }
            break;
          }
          rxbytes += r;
          bput(&c->in, rb, r);
          parse(c);
          if (r < (ssize_t)sizeof rb) {
            break;
          }
        }
      }
    }
  }
  report();
}

/* ---------------------------------------------------------------- line/frame protocols */
#define RING (1u << 20)
static double *t_of;
static int outstanding;
typedef struct {
  int rfd, wfd;
  int ws;
  Buf in, out;
  size_t off;
  int inflight;
  int init_wait;
  int ready;
  Buf frag;
} Link;
static Buf L_req;
static Link *Ls;
static int nL;
static void link_flush(Link *l) {
  while (l->off < l->out.n) {
    ssize_t k = write(l->wfd, l->out.p + l->off, l->out.n - l->off);
    if (k < 0) {
      if (errno == EAGAIN) {
        return;
      }
      die("write");
    }
    l->off += k;
  }
  l->out.n = l->off = 0;
}
static void link_put(Link *l, const char *p, size_t n) {
  if (l->ws) {
    unsigned char h[14];
    size_t k = 2;
    h[0] = 0x81;
    if (n < 126) {
      h[1] = 0x80 | n;
    } else if (n < 65536) {
      h[1] = 0x80 | 126;
      h[2] = n >> 8;
      h[3] = n;
      k = 4;
    } else {
      h[1] = 0x80 | 127;
      for (int i = 0; i < 8; i++) {
        h[2 + i] = (uint64_t)n >> (56 - 8 * i);
      }
      k = 10;
    }
    memset(h + k, 0, 4);
    bput(&l->out, h, k + 4);
    bput(&l->out, p, n);
  } else {
    bput(&l->out, p, n);
    if (!n || p[n - 1] != '\n') {
      bput(&l->out, "\n", 1);
    }
  }
}
static void link_call(Link *l) {
  static Buf t;
  t.n = 0;
  bput(&t, L_req.p, L_req.n);
  uint32_t id = next_id();
  patch(t.p, t.n < 65536 ? t.n : 2048);
  t_of[id & (RING - 1)] = now();
  l->inflight++;
  link_put(l, t.p, t.n);
}
static void link_ready(Link *l) {
  if (init_ms < 0) {
    init_ms = (now() - t_start) * 1e3;
  }
  l->ready = 1;
  for (int i = 0; i < inflight; i++) {
    link_call(l);
  }
  link_flush(l);
}
static void on_msg(Link *l, char *p, size_t n) {
  if (!n) {
    return;
  }
  if (!l->ready) {
    if (memmem(p, n, "\"id\":", 5) && memmem(p, n, "\"result\"", 8)) {
      if (first_ms < 0) {
        first_ms = (now() - t_start) * 1e3;
      }
      if (--l->init_wait <= 0) {
        link_ready(l);
      }
    } else if (memmem(p, n, "\"error\"", 7)) {
      bad("init error", p, n);
    }
    return;
  }
  char *q = NULL, *s = p;
  size_t left = n;
  if (n > 100000) { /* id sits near the head or near the tail */
    q = memmem(p, 512, "\"id\":", 5);
    if (!q) {
      q = memmem(p + n - 512, 512, "\"id\":", 5);
    }
  } else {
    while ((q = memmem(s, left, "\"id\":", 5))) {
      char *d = q + 5;
      if (*d == ' ') {
        d++;
      }
      if (*d == '1' || (*d >= '1' && *d <= '9' && d[8] >= '0')) {
        break;
      }
      s = q + 5;
      left = p + n - s;
    }
  }
  if (!q) {
    return; /* a notification */
  }
  q += 5;
  if (*q == ' ') {
    q++;
  }
  uint32_t id = strtoul(q, NULL, 10);
  if (id < 100000000u) {
    return;
  }
  if (expect && !memmem(p, n, expect, strlen(expect))) {
    bad("unexpected", p, n);
  } else {
    record(now() - t_of[id & (RING - 1)]);
  }
  l->inflight--;
  link_call(l);
}
static void link_parse(Link *l) {
  size_t u = 0;
  if (!l->ws) {
    for (;;) {
      char *q = memchr(l->in.p + u, '\n', l->in.n - u);
      if (!q) {
        break;
      }
      on_msg(l, l->in.p + u, q - (l->in.p + u));
      u = q - l->in.p + 1;
    }
  } else {
    for (;;) {
      unsigned char *p = (unsigned char *)l->in.p + u;
      size_t n = l->in.n - u;
      if (n < 2) {
        break;
      }
      size_t len = p[1] & 127, h = 2;
      if (len == 126) {
        if (n < 4) {
          break;
        }
        len = p[2] << 8 | p[3];
        h = 4;
      } else if (len == 127) {
        if (n < 10) {
          break;
        }
        len = 0;
        for (int i = 0; i < 8; i++) {
          len = len << 8 | p[2 + i];
        }
        h = 10;
      }
      if (n < h + len) {
        break;
      }
      int op = p[0] & 15, fin = p[0] >> 7;
      if (op == 9) {
        unsigned char o[6] = {0x8a, 0x80, 0, 0, 0, 0};
        bput(&l->out, o, 6);
      } else if (op == 8) {
        bad("ws close", (char *)p + h, len);
      } else if (op <= 2) {
        if (fin && op) {
          on_msg(l, (char *)p + h, len);
        } else {
          bput(&l->frag, p + h, len);
          if (fin) {
            on_msg(l, l->frag.p, l->frag.n);
            l->frag.n = 0;
          }
        }
      }
      u += h + len;
    }
  }
  if (u) {
    memmove(l->in.p, l->in.p + u, l->in.n - u);
    l->in.n -= u;
  }
}
static void run_links(char **cmd) {
  t_of = calloc(RING, sizeof *t_of);
  L_req = slurp(f_req);
  while (L_req.n && L_req.p[L_req.n - 1] == '\n') {
    L_req.p[--L_req.n] = 0;
  }
  Buf init = f_init ? slurp(f_init) : (Buf){0};
  ep = epoll_create1(0);
  nL = mode == STDIO ? 1 : conns;
  Ls = calloc(nL, sizeof *Ls);
  t_start = now();
  double t_spawn = t_start;
  for (int i = 0; i < nL; i++) {
    Link *l = &Ls[i];
    if (mode == STDIO) {
      int a[2], b[2];
      if (pipe(a) || pipe(b)) {
        die("pipe");
      }
      fcntl(a[1], F_SETPIPE_SZ, 1 << 20);
      fcntl(b[1], F_SETPIPE_SZ, 1 << 20);
      spid = fork();
      if (!spid) {
        if (srvcpu >= 0) {
          cpu_set_t s;
          CPU_ZERO(&s);
          CPU_SET(srvcpu, &s);
          sched_setaffinity(0, sizeof s, &s);
        }
        dup2(a[0], 0);
        dup2(b[1], 1);
        close(a[0]);
        close(a[1]);
        close(b[0]);
        close(b[1]);
        execvp(cmd[0], cmd);
        die("exec");
      }
      close(a[0]);
      close(b[1]);
      l->wfd = a[1];
      l->rfd = b[0];
    } else {
      l->ws = 1;
      int fd = socket(AF_INET, SOCK_STREAM, 0);
      struct sockaddr_in s = {.sin_family = AF_INET, .sin_port = htons(port)};
      s.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
      if (connect(fd, (void *)&s, sizeof s)) {
        die("connect");
      }
      int one = 1;
      setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
      char r[1024];
      int n = snprintf(
          r, sizeof r,
          "GET %s HTTP/1.1\r\nHost: 127.0.0.1:%d\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Key: "
          "dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Protocol: mcp\r\n\r\n",
          path, port);
      if (write(fd, r, n) != n) {
        die("ws write");
      }
      Buf h = {0};
      char ch;
      while (read(fd, &ch, 1) == 1) {
        bput(&h, &ch, 1);
        if (h.n > 4 && !memcmp(h.p + h.n - 4, "\r\n\r\n", 4)) {
          break;
        }
      }
      if (!h.n || !strstr(h.p, " 101 ")) {
        fprintf(stderr, "%s\n", h.p ? h.p : "");
        die("no upgrade");
      }
      l->rfd = l->wfd = fd;
      free(h.p);
    }
    fcntl(l->rfd, F_SETFL, O_NONBLOCK);
    fcntl(l->wfd, F_SETFL, O_NONBLOCK);
    struct epoll_event e = {.events = EPOLLIN, .data.ptr = l};
    epoll_ctl(ep, EPOLL_CTL_ADD, l->rfd, &e);
    for (char *s = init.p; s && *s;) {
      char *z = strchr(s, '\n');
      size_t n = z ? (size_t)(z - s) : strlen(s);
      if (n) {
        if (memmem(s, n, "\"id\"", 4)) {
          l->init_wait++;
        }
        link_put(l, s, n);
      }
      s = z ? z + 1 : s + n;
    }
    link_flush(l);
    if (!l->init_wait) {
      link_ready(l);
    }
  }
  static char rb[262144];
  struct epoll_event ev[64];
  double t_ready = 0;
  for (;;) {
    int k = epoll_wait(ep, ev, 64, 20);
    if (!t_ready) {
      int ok = 1;
      for (int i = 0; i < nL; i++) {
        ok &= Ls[i].ready;
      }
      if (ok) {
        t_ready = now();
        t_start = t_ready;
      } else if (now() > t_spawn + 60) {
        die("init timed out");
      }
    }
    if (t_ready && tick()) {
      break;
    }
    if (t_ready && now() > t_ready + warmup + duration + 20) {
      die("stalled");
    }
    for (int i = 0; i < k; i++) {
      Link *l = ev[i].data.ptr;
      for (;;) {
        ssize_t r = read(l->rfd, rb, sizeof rb);
        if (r < 0) {
          if (errno == EAGAIN) {
            break;
          }
          die("read");
        }
        if (!r) {
          die("server closed");
        }
        rxbytes += r;
        bput(&l->in, rb, r);
        link_parse(l);
        link_flush(l);
        if (r < (ssize_t)sizeof rb) {
          break;
        }
      }
    }
    for (int i = 0; i < nL; i++) {
      if (Ls[i].out.n) {
        link_flush(&Ls[i]);
      }
    }
  }
  report();
  if (mode == STDIO) {
    close(Ls[0].wfd);
    double t = now();
    while (waitpid(spid, NULL, WNOHANG) == 0) {
      if (now() > t + 2) {
        kill(spid, SIGKILL);
        waitpid(spid, NULL, 0);
        break;
      }
      while (read(Ls[0].rfd, rb, sizeof rb) > 0)
        ;
      usleep(5000);
    }
  }
}

int main(int ac, char **av) {
  signal(SIGPIPE, SIG_IGN);
  if (ac < 2) {
    die("mode?");
  }
  const char *m = av[1];
  mode = !strcmp(m, "http")     ? HTTP
         : !strcmp(m, "elicit") ? ELICIT
         : !strcmp(m, "mrtr")   ? MRTR
         : !strcmp(m, "ws")     ? WS
                                : STDIO;
  int i;
  for (i = 2; i < ac && strcmp(av[i], "--"); i += 2) {
    const char *o = av[i], *v = av[i + 1];
    if (!v) {
      die(o);
    }
    if (!strcmp(o, "--port")) {
      port = atoi(v);
    } else if (!strcmp(o, "--conns")) {
      conns = atoi(v);
    } else if (!strcmp(o, "--inflight")) {
      inflight = atoi(v);
    } else if (!strcmp(o, "--duration")) {
      duration = atof(v);
    } else if (!strcmp(o, "--warmup")) {
      warmup = atof(v);
    } else if (!strcmp(o, "--req")) {
      f_req = v;
    } else if (!strcmp(o, "--ans")) {
      f_ans = v;
    } else if (!strcmp(o, "--init")) {
      f_init = v;
    } else if (!strcmp(o, "--sids")) {
      f_sids = v;
    } else if (!strcmp(o, "--expect")) {
      expect = v;
    } else if (!strcmp(o, "--pid")) {
      spid = atoi(v);
    } else if (!strcmp(o, "--server-cpu")) {
      srvcpu = atoi(v);
    } else if (!strcmp(o, "--path")) {
      path = v;
    } else {
      die(o);
    }
  }
  if (mode == WS || mode == STDIO) {
    run_links(av + i + 1);
  } else {
    run_http();
  }
  return 0;
}
