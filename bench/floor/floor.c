/*
 * floor: the least work that an answer can take which a quorum has confirmed. It makes the
 * system calls of the oracle's hot path, and nothing else: no timestamps, no checks, no timers.
 * bench/floor.sh compares the oracle with it.
 *
 *   floor leader PORT FOLLOWER_PORT [SPIN_US]   serves HTTP and RESP on 127.0.0.1:PORT
 *   floor follower PORT [SPIN_US]               echoes frames on 127.0.0.1:PORT
 *
 * With SPIN_US a process polls for so many microseconds before it sleeps, so that its processor does not: waking a virtual one
 * costs more than a request.
 *
 * The leader has one thread. A turn waits for epoll, reads from all connections that are ready,
 * and writes to each. GET /lease is answered in the same turn. Any other request waits for a
 * round: a frame of FRAME bytes to the follower, which returns it. All requests that wait share
 * the next round; at most ROUNDS are in flight, as in the oracle.
 *
 * A request of HTTP is whatever ends with an empty line, one of RESP begins with an asterisk and
 * is whatever ends with TS or LEASE; it may arrive in parts, and several at once.
 * Every connection has a buffer of fixed size, and one that sends more without an end is
 * closed. Ends on SIGTERM.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { FRAME = 45, ROUNDS = 2, FDS = 65536, EVENTS = 512, BUFFER = 4096 };

static const char http_answer[] =
	"HTTP/1.1 200 OK\r\nContent-Type: application/octet-stream\r\nContent-Length: 16\r\n\r\n0123456789abcdef";
static const char resp_answer[] = "$16\r\n0123456789abcdef\r\n";

struct conn {
	int waiting; /* requests without a round */
	int asked[ROUNDS]; /* requests of each round in flight */
	int ready;   /* answers to write at the end of the turn */
	int used;    /* bytes in buffer: the beginning of a request */
	int queued;  /* it is in the list of those to write to */
	int resp;    /* it speaks RESP */
	char buffer[BUFFER];
};

static struct conn *conns[FDS];
static int waiting[FDS], waiting_count;             /* connections with requests without a round */
static int asked[ROUNDS][FDS], asked_count[ROUNDS]; /* those of each round, oldest round first */
static int rounds;
static int writes[FDS], write_count;
static int epoll, follower;
static long spin; /* nanoseconds */

static void die(const char *what) {
	perror(what);
	exit(1);
}

static int listen_at(int port) {
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), one = 1;
	struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	if (fd < 0 || setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one) || bind(fd, (struct sockaddr *)&a, sizeof a) || listen(fd, 16384))
		die("listen");
	return fd;
}

static void no_delay(int fd) {
	int one = 1;
	if (setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one))
		die("TCP_NODELAY");
}

static void watch(int fd) {
	struct epoll_event e = {.events = EPOLLIN, .data.fd = fd};
	if (epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &e))
		die("epoll_ctl");
}

static void write_all(int fd, const char *b, size_t n) {
	while (n > 0) {
		ssize_t w = write(fd, b, n);
		if (w < 0 && errno == EINTR)
			continue;
		if (w < 0)
			return; /* the peer is gone; the next read tells */
		b += w;
		n -= w;
	}
}

static long now(void) {
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1000000000L + t.tv_nsec;
}

/* wait_for_events polls for the time of spin, and sleeps then. */
static int wait_for_events(struct epoll_event *events, int most) {
	long until = spin ? now() + spin : 0;
	int n;
	do
		n = epoll_wait(epoll, events, most, spin ? 0 : -1);
	while (n == 0 && now() < until);
	if (n == 0)
		n = epoll_wait(epoll, events, most, -1);
	if (n < 0 && errno != EINTR)
		die("epoll_wait");
	return n;
}

static void run_follower(int port) {
	int l = listen_at(port), fd = accept(l, NULL, NULL);
	if (fd < 0)
		die("accept");
	no_delay(fd);
	if ((epoll = epoll_create1(EPOLL_CLOEXEC)) < 0)
		die("epoll_create1");
	watch(fd);
	for (;;) {
		struct epoll_event e;
		char b[64 * FRAME];
		wait_for_events(&e, 1);
		ssize_t n = read(fd, b, sizeof b);
		if (n <= 0)
			return;
		write_all(fd, b, n);
	}
}

static void hang_up(int fd) {
	struct conn *c = conns[fd];
	if (!c)
		return;
	conns[fd] = NULL;
	free(c);
	close(fd);
	for (int r = 0; r < rounds; r++) /* its number may be used again */
		for (int i = 0; i < asked_count[r]; i++)
			if (asked[r][i] == fd)
				asked[r][i] = -1;
	for (int i = 0; i < waiting_count; i++)
		if (waiting[i] == fd)
			waiting[i] = -1;
	for (int i = 0; i < write_count; i++)
		if (writes[i] == fd)
			writes[i] = -1;
}

static void write_later(int fd, int answers) {
	struct conn *c = conns[fd];
	c->ready += answers;
	if (!c->queued) {
		c->queued = 1;
		writes[write_count++] = fd;
	}
}

/* end_of returns the end of the first request in a buffer, NULL if it is not complete, and whether it
 * is answered by lease. */
static char *end_of(const struct conn *c, char *at, int left, int *lease) {
	static const char quorum[] = "\r\nTS\r\n", leased[] = "\r\nLEASE\r\n";
	char *end;
	*lease = 0;
	if (!c->resp) {
		*lease = left > 10 && !memcmp(at, "GET /lease", 10);
		end = memmem(at, left, "\r\n\r\n", 4);
		return end ? end + 4 : NULL;
	}
	if (left > 1 && at[1] == '1') { /* *1: TS alone */
		end = memmem(at, left, quorum, sizeof quorum - 1);
		return end ? end + sizeof quorum - 1 : NULL;
	}
	*lease = 1;
	end = memmem(at, left, leased, sizeof leased - 1);
	return end ? end + sizeof leased - 1 : NULL;
}

/* receive reads once and takes in the requests that are complete. */
static void receive(int fd) {
	struct conn *c = conns[fd];
	ssize_t n = read(fd, c->buffer + c->used, BUFFER - c->used);
	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	if (n <= 0) {
		hang_up(fd);
		return;
	}
	c->used += n;
	char *at = c->buffer, *end;
	int left = c->used, lease;
	c->resp = *at == '*';
	if (c->resp && memmem(at, left, "\r\nCONFIG\r\n", 10)) { /* two questions of redis-benchmark, before it begins */
		static const char none[] = "*2\r\n$4\r\nnone\r\n$0\r\n\r\n";
		for (char *q = at; (q = memmem(q, at + left - q, "\r\nCONFIG\r\n", 10)); q += 10)
			write_all(fd, none, sizeof none - 1);
		c->used = 0;
		return;
	}
	while ((end = end_of(c, at, left, &lease))) {
		if (lease)
			write_later(fd, 1);
		else if (c->waiting++ == 0)
			waiting[waiting_count++] = fd;
		left -= end - at;
		at = end;
	}
	if (left == BUFFER) {
		hang_up(fd);
		return;
	}
	memmove(c->buffer, at, left);
	c->used = left;
}

static void begin_round(void) {
	static const char frame[FRAME];
	if (waiting_count == 0 || rounds == ROUNDS)
		return;
	int r = rounds++;
	asked_count[r] = 0;
	for (int i = 0; i < waiting_count; i++) {
		int fd = waiting[i];
		if (fd < 0)
			continue;
		asked[r][asked_count[r]++] = fd;
		conns[fd]->asked[r] = conns[fd]->waiting;
		conns[fd]->waiting = 0;
	}
	waiting_count = 0;
	write_all(follower, frame, FRAME);
}

/* confirm answers the requests of the oldest round. */
static void confirm(void) {
	for (int i = 0; i < asked_count[0]; i++)
		if (asked[0][i] >= 0)
			write_later(asked[0][i], conns[asked[0][i]]->asked[0]);
	rounds--;
	if (rounds == 0)
		return;
	for (int i = 0; i < asked_count[1]; i++) {
		int fd = asked[0][i] = asked[1][i];
		if (fd >= 0)
			conns[fd]->asked[0] = conns[fd]->asked[1];
	}
	asked_count[0] = asked_count[1];
}

static void hear_follower(void) {
	static int part;
	char b[64 * FRAME];
	ssize_t n = read(follower, b, sizeof b);
	if (n <= 0)
		die("follower");
	for (part += n; part >= FRAME && rounds > 0; part -= FRAME)
		confirm();
}

static void flush(void) {
	static char b[64 * sizeof http_answer];
	for (int i = 0; i < write_count; i++) {
		int fd = writes[i];
		if (fd < 0)
			continue;
		const char *answer = conns[fd]->resp ? resp_answer : http_answer;
		size_t n = 0, size = (conns[fd]->resp ? sizeof resp_answer : sizeof http_answer) - 1;
		conns[fd]->queued = 0;
		for (; conns[fd]->ready > 0; conns[fd]->ready--) {
			if (n + size > sizeof b) {
				write_all(fd, b, n);
				n = 0;
			}
			memcpy(b + n, answer, size);
			n += size;
		}
		write_all(fd, b, n);
	}
	write_count = 0;
}

static void welcome(int listener) {
	int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
	if (fd < 0)
		return;
	if (fd >= FDS || !(conns[fd] = calloc(1, sizeof **conns))) {
		close(fd);
		return;
	}
	no_delay(fd);
	watch(fd);
}

static void run_leader(int port, int follower_port) {
	struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons(follower_port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	int listener = listen_at(port);
	follower = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (follower < 0 || connect(follower, (struct sockaddr *)&a, sizeof a))
		die("connect");
	no_delay(follower);
	if ((epoll = epoll_create1(EPOLL_CLOEXEC)) < 0)
		die("epoll_create1");
	watch(listener);
	watch(follower);
	for (;;) {
		struct epoll_event events[EVENTS];
		int n = wait_for_events(events, EVENTS);
		for (int i = 0; i < n; i++) {
			int fd = events[i].data.fd;
			if (fd == listener)
				welcome(listener);
			else if (fd == follower)
				hear_follower();
			else if (conns[fd])
				receive(fd);
		}
		begin_round();
		flush();
	}
}

int main(int argc, char **argv) {
	if ((argc == 4 || argc == 5) && !strcmp(argv[1], "leader")) {
		spin = argc == 5 ? atol(argv[4]) * 1000 : 0;
		run_leader(atoi(argv[2]), atoi(argv[3]));
	} else if ((argc == 3 || argc == 4) && !strcmp(argv[1], "follower")) {
		spin = argc == 4 ? atol(argv[3]) * 1000 : 0;
		run_follower(atoi(argv[2]));
	} else {
		fprintf(stderr, "usage: floor leader PORT FOLLOWER_PORT [SPIN_US] | floor follower PORT [SPIN_US]\n");
		return 2;
	}
	return 0;
}
