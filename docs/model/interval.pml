/*
 * Limits of the cluster clock (I14): three nodes, three terms. README.md explains what is
 * modelled, what is left out, and why that is sound. check.sh runs it, with each of the
 * deliberate mistakes below as well.
 *
 * As in lease.pml, the whole system is one process that repeats one atomic action at a
 * time, and no action is ever forced. There are no promises here: anyone may campaign at
 * any time, so a transfer is nothing special.
 *
 * Time is kept as what is left of limits and waits, and as what has passed since a node
 * answered a leader, up to where more makes no difference. In one unit of time a clock
 * advances by clockMin or clockMax.
 *
 * spin -D switches on: one of the mistakes, in capitals and named after those of
 * internal/core/mutant where there is one; REACH=1 to 9, which asserts that something
 * good never happens; WORST_RATES and NO_TIDY, see below.
 */

#define N        3 /* nodes */
#ifndef TERMS
#define TERMS    3 /* node 0 leads term 1; no election goes beyond this term */
#endif
#define ENTRIES  3 /* what a leader may add to the log: its reservation, and words about limits */

#define clockMin 1
#define clockMax 2

/* LIMIT is the length of a limit on the cluster clock, which lasts LIMIT/clockMin units of
 * time at the most. WAIT is how long no clock of a later term may start after it was begun. */
#ifndef LIMIT
#define LIMIT 2
#endif
#ifdef WAIT_WITHOUT_RATE  /* as if all clocks had the same rate */
#define WAIT LIMIT
#else
#define WAIT (LIMIT*clockMax/clockMin)
#endif

#ifndef REACH
#define REACH 0
#endif
#define reached(k, what) if :: (REACH == k) && (what) -> assert(false) :: else fi

/* Roles. */
#define follower  0
#define candidate 1
#define leader    2

/* A leader's latest round, as one voter sees it. */
#define idle      0
#define heartbeat 1 /* the leader's message is on its way */
#define ack       2 /* the voter's answer is on its way */

byte term[N] = 1;
byte durable[N] = 1;      /* the highest term on its disk; it votes once in each, never in an older one */
byte role[N];
byte since[N];            /* on its clock, since it answered a leader, led, or was started; WAIT: or longer */
byte grants[N*N];         /* grants[c*N+v]: v's vote for candidate c is on its way, and says this less 1; 0: none */

/* The log. Entries of a term come from its leader, so logs whose last entries have the same term and
 * index within it are equal. The first is the leader's reservation, each further one says the contrary
 * of what was said last: that limits run, or that none does. */
byte logTerm[N] = 1;
byte logIndex[N] = 1;
bit  base[TERMS+1];       /* base[t]: what the log before the first entry of term t says; 1: limits run */

#define says(t, i) (base[t] ^ (1-(i)%2)) /* what the first i entries of term t say */

/* A leader's own. */
byte committed[N];        /* entries of its term that a quorum has */
byte applied[N];          /* those of them that it has applied */
byte wait[N];             /* what is left of its wait, on its clock */
bit  open[N];
bit  releasing[N];        /* it tells no more, to transfer its leadership */
byte age[N];              /* of the latest round since it was sent, on the cluster clock */
byte round[N*N];          /* round[n*N+v]: that round between leader n and voter v */

#define saying(n) (applied[n] < logIndex[n]) /* an entry of its own is not applied */

/* The highest term that has opened, and what is left of the latest limit that was told in it: so long,
 * someone may use bounds of its clock. No limit of an earlier term is left then; that is what must hold. */
byte opened = 1;
byte limit;

/* History that only mistakes and questions of reachability need. */
#if defined(REELECTED_SKIPS_WAIT) || REACH == 4
#define LED
bit led[N];
#endif
#ifdef GO_BY_OLDER_WORD
bit older[N];             /* the word before the last one in its log was that none runs */
#endif
#if REACH == 1 || REACH == 2 || REACH == 3 || REACH == 5
#define SCHEDULED
byte scheduled[N];        /* how long the leader has to wait if the log says that limits run */
#endif
#if REACH == 6
bit restarted[N], byRestarted[N];
#endif
#if REACH == 1
bit told;                 /* a limit was told in term 1 */
#endif

/* drop forgets all that belongs to one term and role. A leader answers itself until then. */
inline drop(n, p, q) {
	role[n] = follower;
	grants[n*N+p] = 0;
	grants[n*N+q] = 0;
	committed[n] = 0;
	applied[n] = 0;
	wait[n] = 0;
	open[n] = 0;
	releasing[n] = 0;
	age[n] = 0;
	round[n*N+p] = idle;
	round[n*N+q] = idle
}

/* raise brings node n to term t. */
inline raise(n, p, q, t) {
	if :: role[n] != follower -> drop(n, p, q) :: else fi;
	term[n] = t
}

/* ------------------------------------------------------------------ elections */

inline campaign(n, p, q) {
	raise(n, p, q, term[n]+1);
	durable[n] = term[n];
	role[n] = candidate
}

/* Voter v has a request of candidate c, whose log is not behind its own. */
#define mayGrant(v, c) (role[c] == candidate && term[v] <= term[c] && durable[v] < term[c] && \
	(logTerm[c] > logTerm[v] || logTerm[c] == logTerm[v] && logIndex[c] >= logIndex[v]))

inline grant(v, p, q, c) {
	raise(v, p, q, term[c]);
	durable[v] = term[c];
	grants[c*N+v] = since[v]+1
}

/* Candidate c is elected by its own vote and that of v, which may have come late. */
#define mayLead(c, v) (role[c] == candidate && grants[c*N+v] > 0)

#define least(x, y) ((x) < (y) -> (x) : (y))
#ifdef REPORT_OWN_ONLY    /* it counts only what it knows itself */
#define unheard(c, v) since[c]
#else
#define unheard(c, v) least(since[c], grants[c*N+v]-1)
#endif

inline lead(c, p, q, v) {
	assert(!(role[p] == leader && term[p] == term[c]) && !(role[q] == leader && term[q] == term[c]));
	role[c] = leader;
	wait[c] = WAIT-unheard(c, v);
#ifdef NO_WAIT
	wait[c] = 0;
#endif
#ifdef REELECTED_SKIPS_WAIT /* it does not wait if it led before */
	if :: led[c] -> wait[c] = 0 :: else fi;
#endif
#ifdef SCHEDULED
	scheduled[c] = wait[c];
#endif
#if REACH == 6
	byRestarted[c] = restarted[v];
#endif
	since[c] = 0;
	grants[c*N+p] = 0;
	grants[c*N+q] = 0;
	base[term[c]] = says(logTerm[c], logIndex[c]);
#ifdef GO_BY_OLDER_WORD
	older[c] = (logIndex[c] > 1 && !says(logTerm[c], logIndex[c]-1));
#endif
	logTerm[c] = term[c];
	logIndex[c] = 1
}

/* -------------------------------------------------------------------- the log */

/* Leader n's log reaches v and its disk; the leader may learn of that much later. */
#define mayAppend(v, n) (role[n] == leader && term[v] <= term[n] && durable[v] <= term[n] && \
	(logTerm[v] < term[n] || logIndex[v] < logIndex[n]))

inline append(v, p, q, n) {
	raise(v, p, q, term[n]);
	durable[v] = term[n];
	logTerm[v] = term[n];
	logIndex[v] = logIndex[n];
	committed[n] = logIndex[n]
}

/* A leader applies what is committed. Its reservation comes after all that was said before. */
inline apply(n) {
	if
	:: applied[n] == 0 && !base[term[n]] -> wait[n] = 0
#ifdef GO_BY_OLDER_WORD   /* it goes by what it had applied when it was elected */
	:: older[n] -> wait[n] = 0; older[n] = 0
#endif
	:: else
	fi;
	applied[n] = committed[n]
}

/* It opens: it issues timestamps, and its clock runs. A deposed leader may do so after a later one; it
 * issues nothing without a confirmed round. */
#define mayOpen(n) (role[n] == leader && !open[n] && applied[n] > 0 && wait[n] == 0)

inline opens(n, p, q) {
	open[n] = 1;
	if
	:: opened < term[n] -> assert(limit == 0); opened = term[n]
	:: else
	fi;
#if REACH == 1
	reached(1, told && !base[term[n]] && scheduled[n] == WAIT);
#elif REACH == 2
	reached(2, base[term[n]] && scheduled[n] > 0 && scheduled[n] < WAIT);
#elif REACH == 3
	reached(3, base[term[n]] && scheduled[n] == 0);
#elif REACH == 4
	reached(4, base[term[n]] && led[n]);
#elif REACH == 5
	reached(5, base[term[n]] && scheduled[n] == WAIT);
#elif REACH == 6
	reached(6, byRestarted[n]);
#endif
#ifdef LED
	led[n] = 1
#endif
}

/* --------------------------------------------------------------------- rounds */

/* What is on its way for an older round is given up. */
inline begin(n, p, q) {
#ifndef REUSE_ROUND_NUMBER
	round[n*N+p] = heartbeat;
	round[n*N+q] = heartbeat;
#else                     /* answers to an older round count for this one */
	if :: round[n*N+p] == idle -> round[n*N+p] = heartbeat :: else fi;
	if :: round[n*N+q] == idle -> round[n*N+q] = heartbeat :: else fi;
#endif
	age[n] = 0;
#ifdef LIMIT_UNCONFIRMED  /* a limit does not wait for an answer */
	extend(n, p, q)
#endif
}

#define mayAck(v, n) (round[n*N+v] == heartbeat && term[v] <= term[n])

inline acknowledge(v, p, q, n) {
	raise(v, p, q, term[n]);
#ifndef CLOCK_BEFORE_MESSAGES /* it goes by a clock that was read before the message came, as long ago as the last answer */
	since[v] = 0;
#endif
	round[n*N+v] = ack
}

/* A leader tells limits while the log says that some run. */
#ifdef TELL_UNSAID        /* whatever the log says */
#define tells(n) true
#elif defined(RELEASE_AND_TELL)    /* also once it has said that none runs */
#define tells(n) (says(term[n], applied[n]) || releasing[n])
#elif defined(TELL_AFTER_GIVING_UP) /* a release was given up, and its entry is still to be applied */
#define tells(n) (says(term[n], applied[n]) && !releasing[n])
#else
#define tells(n) (says(term[n], applied[n]) && !releasing[n] && !saying(n))
#endif

inline extend(n, p, q) {
	if
	:: tells(n) && age[n] < LIMIT ->
		assert(opened <= term[n]);
		if :: LIMIT-age[n] > limit -> limit = LIMIT-age[n] :: else fi;
#if REACH == 1
		if :: term[n] == 1 -> told = 1 :: else fi;
#endif
		reached(7, applied[n] == 3 && term[n] == 1);
		reached(8, role[p] == leader && term[p] > term[n] && applied[p] > 0);
		reached(9, term[n] > 1 && !base[term[n]])
	:: else
	fi
}

inline confirm(n, p, q) {
#ifdef LIMIT_FROM_ANSWER  /* a limit counts from when the answer came */
	age[n] = 0;
#endif
	extend(n, p, q);
	round[n*N+p] = idle;
	round[n*N+q] = idle;
	age[n] = 0
}

/* --------------------------------------------------------------------- words */

#define maySay(n, what) (role[n] == leader && open[n] && term[n] < TERMS && !saying(n) && \
	logIndex[n] < ENTRIES && says(term[n], logIndex[n]) != what)

/* Its own limits have passed. Others' passed before it opened. */
#ifdef RELEASE_EARLY      /* it says so while one runs */
#define limitsPassed(n) true
#else
#define limitsPassed(n) (limit == 0 || opened > term[n])
#endif

inline say(n) {
	logIndex[n] = logIndex[n]+1
}

/* -------------------------------------------------------------------- restart */

/* A node restarts in term t: its term, or an earlier one if that came with a message and was
 * not durable yet. It does not know when it answered. */
inline restart(n, p, q, t) {
	drop(n, p, q);
	term[n] = t;
#ifdef REPORT_FORGETS     /* it says: never */
	since[n] = WAIT;
#else
	since[n] = 0;
#endif
#if REACH == 6
	restarted[n] = 1
#endif
}

/* ----------------------------------------------------------------------- time */

#define runs(x, clock) x = (x > clock -> x-clock : 0)
#define counts(x, clock, most) x = (x+clock < most -> x+clock : most)

/* passes lets the clock of node n advance. A leader notes all the time that it leads. */
inline passes(n, p, q, clock, clusterClock) {
#ifndef REPORT_NOT_AS_LEADER /* leading does not count as an answer to a leader */
	if :: role[n] != leader -> counts(since[n], clock, WAIT) :: else fi;
#else
	counts(since[n], clock, WAIT);
#endif
	runs(wait[n], clock);
	if
	:: round[n*N+p] == idle && round[n*N+q] == idle
	:: else -> counts(age[n], clusterClock, LIMIT)
	fi
}

/* ------------------------------------------------------------------- reduction */

/* tidy makes states equal that have equal futures. It runs after every action and only
 * takes away what can have no effect any more. NO_TIDY proves the same without it. */
inline tidyNode(n, p, q) {
	/* a candidate for whom nobody will vote */
	if
	:: role[n] == candidate && grants[n*N+p] == 0 && grants[n*N+q] == 0 && durable[p] >= term[n] && durable[q] >= term[n] ->
		role[n] = follower
	:: else
	fi;
	/* a heartbeat that will be refused, a round that is too old for a limit */
	if :: round[n*N+p] == heartbeat && durable[p] > term[n] -> round[n*N+p] = idle :: else fi;
	if :: round[n*N+q] == heartbeat && durable[q] > term[n] -> round[n*N+q] = idle :: else fi;
#ifndef LIMIT_FROM_ANSWER
	if :: age[n] == LIMIT -> round[n*N+p] = idle; round[n*N+q] = idle :: else fi;
#endif
	if :: round[n*N+p] == idle && round[n*N+q] == idle -> age[n] = 0 :: else fi;
	/* what a node that has cast its last vote would say in another one, and its log */
	if :: durable[n] == TERMS && role[n] == follower -> since[n] = 0; logTerm[n] = 0; logIndex[n] = 0 :: else fi;
	/* a leader of the last term that has opened: there is nobody whom its limits could concern */
	if :: role[n] == leader && open[n] && term[n] == TERMS -> drop(n, p, q) :: else fi;
	/* the wait of a deposed leader: its opening does no harm */
	if :: opened > term[n] -> wait[n] = 0 :: else fi
}

inline forget(n, p, q) {
	since[n] = WAIT;
	if :: grants[n*N+p] > 0 -> grants[n*N+p] = WAIT+1 :: else fi;
	if :: grants[n*N+q] > 0 -> grants[n*N+q] = WAIT+1 :: else fi
}

#define noLog(t) (logTerm[0] != t && logTerm[1] != t && logTerm[2] != t)

inline tidy() {
#ifndef NO_TIDY
	tidyNode(0, 1, 2); tidyNode(1, 0, 2); tidyNode(2, 0, 1);
	if :: noLog(1) -> base[1] = 0 :: else fi;
	if :: noLog(2) -> base[2] = 0 :: else fi;
	/* when the last term has opened, all waits: only rounds of earlier ones could do harm */
	if :: opened == TERMS -> limit = 0; forget(0, 1, 2); forget(1, 0, 2); forget(2, 0, 1) :: else fi
#else
	skip
#endif
}

/* -------------------------------------------------------------------- the loop */

/* ACTIONS of node n; p and q are the others. The last five: it steps down; it hears of a
 * higher term, be it from a candidate that it refuses; it restarts. */
#define ACTIONS(n, p, q) \
	:: d_step { term[n] < TERMS -> campaign(n, p, q); tidy() } \
	:: d_step { mayGrant(n, p) -> grant(n, p, q, p); tidy() } \
	:: d_step { mayGrant(n, q) -> grant(n, p, q, q); tidy() } \
	:: d_step { mayLead(n, p) -> lead(n, p, q, p); tidy() } \
	:: d_step { mayLead(n, q) -> lead(n, p, q, q); tidy() } \
	:: d_step { mayAppend(n, p) -> append(n, p, q, p); tidy() } \
	:: d_step { mayAppend(n, q) -> append(n, p, q, q); tidy() } \
	:: d_step { role[n] == leader && applied[n] < committed[n] -> apply(n); tidy() } \
	:: d_step { mayOpen(n) -> opens(n, p, q); tidy() } \
	:: d_step { open[n] && term[n] < TERMS -> begin(n, p, q); tidy() } \
	:: d_step { mayAck(n, p) -> acknowledge(n, p, q, p); tidy() } \
	:: d_step { mayAck(n, q) -> acknowledge(n, p, q, q); tidy() } \
	:: d_step { round[n*N+p] == ack || round[n*N+q] == ack -> confirm(n, p, q); tidy() } \
	:: d_step { open[n] && term[n] < TERMS && !releasing[n] -> releasing[n] = 1; tidy() } \
	:: d_step { releasing[n] -> releasing[n] = 0; tidy() } \
	:: d_step { maySay(n, 0) && releasing[n] && limitsPassed(n) -> say(n); tidy() } \
	:: d_step { maySay(n, 1) && !releasing[n] -> say(n); tidy() } \
	:: d_step { role[n] != follower -> drop(n, p, q); tidy() } \
	:: d_step { term[n] < term[p] -> raise(n, p, q, term[p]); tidy() } \
	:: d_step { term[n] < term[q] -> raise(n, p, q, term[q]); tidy() } \
	:: d_step { true -> restart(n, p, q, term[n]); tidy() } \
	:: d_step { durable[n] < term[n] -> restart(n, p, q, durable[n]); tidy() }

/* A unit of time passes. Each node's clock is slow or fast, and so is the cluster clock, all
 * independent of each other: 16 ways. WORST_RATES leaves the one way that is worst for limits:
 * enough to find a mistake. */
#define TIME        RATE0(clockMin) RATE0(clockMax)
#define RATE0(i)    RATE1(i, clockMin) RATE1(i, clockMax)
#define RATE1(i, j) RATE2(i, j, clockMin) RATE2(i, j, clockMax)
#define RATE2(i, j, k) RATE3(i, j, k, clockMin) RATE3(i, j, k, clockMax)
#define RATE3(i, j, k, l) \
	:: d_step { true -> passes(0, 1, 2, i, l); passes(1, 0, 2, j, l); passes(2, 0, 1, k, l); runs(limit, l); tidy() }

init {
	role[0] = leader;
	open[0] = 1;
	committed[0] = 1;
	applied[0] = 1;
	base[1] = 1;
	do
	ACTIONS(0, 1, 2)
	ACTIONS(1, 0, 2)
	ACTIONS(2, 0, 1)
#ifdef WORST_RATES
	RATE3(clockMax, clockMax, clockMax, clockMin)
#else
	TIME
#endif
	od
}
