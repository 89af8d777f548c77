/*
 * Leases and confirmation rounds (I4, I5): three nodes, three terms. README.md
 * explains what is modelled, what is left out, and why that is sound. check.sh runs
 * it, with each of the deliberate mistakes below as well.
 *
 * The whole system is one process that repeats one atomic action at a time: a node
 * does something, a message arrives, or time passes. No action is ever forced, so a
 * pause, a slow network and a lost message are the same: an action that is not taken
 * while others are.
 *
 * Time is kept as what is left of each promise and each lease, never as a date, so
 * the state is finite. In one unit of time a node's clock advances by clockMin or
 * clockMax, and its tick counter by 0 (a pause) or clockMax; rates in between come from
 * alternation.
 *
 * spin -D switches on: one of the mistakes, in capitals and named after those of
 * internal/core/mutant where there is one; REACH=1 to 8, which asserts that something
 * good never happens; WORST_RATES and NO_TIDY, see below.
 */

#define N        3 /* nodes */
#define TERMS    3 /* node 0 leads term 1; no election goes beyond this term */
#define none     3 /* no node */

#define clockMin 1
#define clockMax 2

/* ELECTION is the length of a promise in ticks. SLACK ticks may follow a heartbeat
 * without any time passing: one that waited, one that was nearly due. So a promise
 * lasts (ELECTION-SLACK)/clockMax units of time at the least, and a lease must not
 * last longer even on a clock that advances by clockMin only. */
#define ELECTION 6
#define SLACK    2

#ifdef LEASE_IGNORES_DRIFT        /* the lease ignores that clocks run at different rates */
#define LEASE (ELECTION-SLACK)
#elif defined(LEASE_WITHOUT_SLACK) /* it ignores that ticks may come at once */
#define LEASE (ELECTION*clockMin/clockMax)
#else
#define LEASE ((ELECTION-SLACK)*clockMin/clockMax)
#endif

#ifdef LEASE_CLOCK_STOPS          /* the lease's clock does not run while the process is paused */
#define leaseClockMin 0
#else
#define leaseClockMin clockMin
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
#define heartbeat 1 /* the leader's message is on its way, and asks for a promise */
#define ack       2 /* the voter's answer is on its way, with a promise */
#define bare      3 /* the leader's message, which asks for none */
#define bareAck   4 /* the voter's answer, without a promise */

#define onItsWay(x) ((x) == heartbeat || (x) == bare)
#define isAnswer(x)  ((x) == ack || (x) == bareAck)

/* Vote requests. */
#define plain     1
#define forced    2 /* of a transfer: it overrides promises */

byte term[N] = 1;
byte role[N];
byte promise[N];          /* ticks for which this node grants no vote, as it has promised */

/* A leader's own. */
byte lease[N];            /* what is left of it, on the leader's clock */
bit  forgone[N];          /* a transfer was begun in this term */
byte age[N];              /* of the latest round since it was sent, on the leader's clock */
byte round[N*N];          /* round[n*N+v]: that round between leader n and voter v */
bit  late[N];             /* when the newest request of that round arrived, a later
                             leader had answered already: it must not be confirmed */
#ifdef LEASE_ON_OLD_CLOCK
byte read[N];             /* what was left of the lease when the clock was last read */
#endif

/* Messages that the network may deliver at any later time, several times, or never;
 * and the durable votes, which are their own messages. Indexed by node and term. */
byte request[N*(TERMS-1)];
byte vote[N*(TERMS-1)] = none;
bit  timeoutNow[N*(TERMS-1)]; /* the leader of the term before t transfers to n */

/* The highest term in which a request has been answered. */
byte answered;

/* History that only two of the reachability questions need. */
#if REACH == 3
bit restarted[N];
#define noteRestart(n)  restarted[n] = 1
#define noteGrant(v)    reached(3, restarted[v])
#else
#define noteRestart(n)  skip
#if REACH == 5
bit overridden;
#define noteGrant(v)    overridden = overridden || promise[v] > 0
#else
#define noteGrant(v)    skip
#endif
#endif
#if REACH != 5
#define overridden      false
#endif

#define at(n, t) ((n)*(TERMS-1)+(t)-2) /* node n, election of term t */

/* The highest term that node n is sure to find on its disk: a vote is never lost. */
#define durable(n) (vote[at(n, 3)] != none -> 3 : (vote[at(n, 2)] != none -> 2 : 1))

/* drop forgets all that belongs to one term and role (I2). */
inline drop(n, p, q) {
	role[n] = follower;
	lease[n] = 0;
	forgone[n] = 0;
	age[n] = 0;
	late[n] = 0;
	round[n*N+p] = idle;
	round[n*N+q] = idle;
#ifdef LEASE_ON_OLD_CLOCK
	read[n] = 0
#endif
}

/* raise brings node n to term t. */
inline raise(n, p, q, t) {
	drop(n, p, q);
#ifdef VOTE_AFTER_TERM_CHANGE /* a higher term makes it forget its promise */
	if :: term[n] < t -> promise[n] = 0 :: else fi;
#endif
	term[n] = t
}

/* ------------------------------------------------------------------ elections */

/* A candidate votes for itself. Its requests leave when that vote is durable, and the two are
 * one action: until then nobody can tell that it campaigns. With EARLY_REQUESTS they leave at once,
 * as in the code, and it leads only when its own vote is durable. */
#ifdef COUNT_EARLY_GRANTS   /* it leads by the votes of others alone */
#define EARLY_REQUESTS
#define mayCountVotes(n) true
#else
#define mayCountVotes(n) (vote[at(n, term[n])] == n)
#endif
#ifdef EARLY_REQUESTS
#define voteForSelf(n, t) skip
#define mayVoteForSelf(n) (role[n] == candidate && vote[at(n, term[n])] == none)
#else
#define voteForSelf(n, t) vote[at(n, t)] = n
#define mayVoteForSelf(n) false
#endif

/* A node may campaign at any time when no promise keeps it from voting: it has forgotten its
 * leader, or waited for long enough. */
#define mayCampaign(n) (promise[n] == 0 && term[n] < TERMS)

inline campaign(n, p, q) {
	raise(n, p, q, term[n]+1);
	role[n] = candidate;
	voteForSelf(n, term[n]);
	if :: request[at(n, term[n])] == 0 -> request[at(n, term[n])] = plain :: else fi
}

/* A transfer arrives, perhaps late: the node campaigns at once, whatever it promised. */
#define mayTakeOver(n, t) (timeoutNow[at(n, t)] && (term[n] < t-1 || term[n] == t-1 && role[n] == follower))

inline takeOver(n, p, q, t) {
	raise(n, p, q, t);
	role[n] = candidate;
	voteForSelf(n, t);
	request[at(n, t)] = forced
}

/* Voter v has a request of candidate c in term t. */
#define mayGrant(v, c, t) (request[at(c, t)] && vote[at(v, t)] == none && \
	(term[v] < t || term[v] == t && role[v] == follower) && \
	(promise[v] == 0 || request[at(c, t)] == forced))

inline grant(v, p, q, c, t) {
	noteGrant(v);
	raise(v, p, q, t);
	vote[at(v, t)] = c
}

#define votes(n) ((vote[at(0, term[n])] == n) + (vote[at(1, term[n])] == n) + (vote[at(2, term[n])] == n))
#define mayLead(n) (role[n] == candidate && mayCountVotes(n) && votes(n) >= 2)

inline lead(n, p, q) {
	assert(!(role[p] == leader && term[p] == term[n]) && !(role[q] == leader && term[q] == term[n]));
	role[n] = leader;
	reached(2, request[at(n, term[n])] == forced)
}

/* --------------------------------------------------------------------- rounds */

/* A round begins for the requests that wait; the newest may have arrived just now. It asks
 * for promises (kind is heartbeat) or not (bare). What is on its way for an older round is
 * given up. */
inline begin(n, p, q, kind) {
#ifndef REUSE_ROUND_NUMBER
	round[n*N+p] = kind;
	round[n*N+q] = kind;
#else                       /* answers to an older round count for this one */
	if :: round[n*N+p] == idle -> round[n*N+p] = kind :: else fi;
	if :: round[n*N+q] == idle -> round[n*N+q] = kind :: else fi;
#endif
	age[n] = 0;
	late[n] = (answered > term[n]);
#ifdef LEASE_UNCONFIRMED    /* the lease does not wait for an answer */
	if :: !forgone[n] -> lease[n] = LEASE :: else fi;
#endif
	reached(6, late[n])
}

/* Voter v acknowledges leader n's heartbeat, and promises what it asks for. A promise is
 * never shortened. */
#define mayAck(v, n) (onItsWay(round[n*N+v]) && term[v] <= term[n])

inline acknowledge(v, p, q, n) {
	raise(v, p, q, term[n]);
	if
	:: round[n*N+v] == heartbeat -> promise[v] = ELECTION-SLACK; round[n*N+v] = ack
	:: else -> round[n*N+v] = bareAck
	fi
}

/* The answer of one voter, and the leader's own, are a quorum; so is its promise, if there
 * is one. */
#ifdef LEASE_FROM_CONFIRM   /* any answer counts as a promise */
#define promised(n, p, q) true
#else
#define promised(n, p, q) (round[n*N+p] == ack || round[n*N+q] == ack)
#endif

inline confirm(n, p, q) {
	assert(!late[n]);     /* I4 */
	if :: answered < term[n] -> answered = term[n] :: else fi;
	if
	:: !forgone[n] && promised(n, p, q) ->
#ifdef LEASE_FROM_ANSWER    /* the lease is measured from when the answer came */
		lease[n] = LEASE;
#else
		if :: LEASE-age[n] > lease[n] -> lease[n] = LEASE-age[n] :: else fi;
#endif
	:: else
	fi;
	reached(8, term[n] > 1 && round[n*N+p] != ack && round[n*N+q] != ack);
	round[n*N+p] = idle;
	round[n*N+q] = idle;
	age[n] = 0;
	late[n] = 0;
	reached(4, term[n] == TERMS);
	reached(5, overridden && term[n] > 1)
}

/* -------------------------------------------------------------------- answers */

/* A request arrives, the clock is read, and the leader answers without asking. */
#ifdef LEASE_ON_OLD_CLOCK   /* the clock was read before the request arrived */
#define mayAnswer(n) (role[n] == leader && read[n] > 0)
#else
#define mayAnswer(n) (role[n] == leader && lease[n] > 0)
#endif

inline answer(n, p, q) {
	assert(answered <= term[n]); /* I5 */
	reached(1, term[n] > 1 && term[p] >= term[n] && term[q] >= term[n]);
	reached(7, role[p] == leader && term[p] < term[n])
}

/* -------------------------------------------------------- transfer and restart */

/* A leader gives up its lease for the rest of its term, then sends the transfer. One
 * to a node that is in a later term would have no effect. */
inline transfer(n, to) {
#ifndef LEASE_SURVIVES_TRANSFER      /* it keeps the lease */
	lease[n] = 0;
#ifndef LEASE_RETURNS_AFTER_TRANSFER /* it takes a new one with its next round */
	forgone[n] = 1;
#endif
#endif
	if :: durable(to) <= term[n] -> timeoutNow[at(to, term[n]+1)] = 1 :: else fi
}

/* A node restarts in term t: its term, or an earlier one if the term came with a
 * message and was not durable yet. It does not know what it promised. */
inline restart(n, p, q, t) {
	drop(n, p, q);
	term[n] = t;
#ifdef VOTE_AFTER_RESTART   /* it promised nothing, then */
	promise[n] = 0;
#else
	promise[n] = ELECTION-SLACK;
#endif
	noteRestart(n)
}

/* ----------------------------------------------------------------------- time */

/* passes lets node n count ticks, and its clock advance. */
inline passes(n, p, q, ticks, clock) {
	promise[n] = (promise[n] > ticks -> promise[n]-ticks : 0);
	lease[n] = (lease[n] > clock -> lease[n]-clock : 0);
	if
	:: round[n*N+p] == idle && round[n*N+q] == idle
	:: else -> age[n] = (age[n]+clock < LEASE -> age[n]+clock : LEASE)
	fi
}

/* ------------------------------------------------------------------- reduction */

/* tidy makes states equal that have equal futures. It runs after every action and only
 * takes away what can have no effect any more. NO_TIDY proves the same without it. */
#define over(v, t)      (vote[at(v, t)] != none || durable(v) > t) /* v will grant nobody a vote in t */
#define isCandidate(c, t) (role[c] == candidate && term[c] == t)
#define lost(c, a, b, t) (durable(c) > t || vote[at(c, t)] != none && vote[at(c, t)] != c || over(a, t) && over(b, t))
#define decided(c, t)   (durable(c) >= t && !isCandidate(c, t))

inline tidyElection(c, a, b, t) {
	/* a request that cannot be granted, or whose votes would be of no use */
	if :: lost(c, a, b, t) -> request[at(c, t)] = 0 :: else fi;
	if :: durable(c) >= t -> timeoutNow[at(c, t)] = 0 :: else fi
}

inline tidyVotes(t) {
	/* who voted for whom, when nobody can win by it any more */
	if
	:: decided(0, t) && decided(1, t) && decided(2, t) ->
		vote[at(0, t)] = 0; vote[at(1, t)] = 0; vote[at(2, t)] = 0
	:: else
	fi
}

inline tidyNode(n, p, q) {
	/* a heartbeat that will be refused */
	if :: onItsWay(round[n*N+p]) && durable(p) > term[n] -> round[n*N+p] = idle :: else fi;
	if :: onItsWay(round[n*N+q]) && durable(q) > term[n] -> round[n*N+q] = idle :: else fi;
	if
	:: round[n*N+p] == idle && round[n*N+q] == idle ->
		age[n] = 0; late[n] = 0;
		/* a leader without a lease whom the others have left for good */
		if :: role[n] == leader && lease[n] == 0 && durable(p) > term[n] && durable(q) > term[n] -> drop(n, p, q) :: else fi
	:: else
	fi;
	/* the promise of a node that has cast its last vote */
	if :: vote[at(n, TERMS)] != none -> promise[n] = 0 :: else fi
}

inline tidy() {
#ifdef NO_TIDY
	skip
#else
	tidyElection(0, 1, 2, 2); tidyElection(1, 0, 2, 2); tidyElection(2, 0, 1, 2);
	tidyElection(0, 1, 2, 3); tidyElection(1, 0, 2, 3); tidyElection(2, 0, 1, 3);
	tidyVotes(2); tidyVotes(3);
	tidyNode(0, 1, 2); tidyNode(1, 0, 2); tidyNode(2, 0, 1)
#endif
}

/* -------------------------------------------------------------------- the loop */

/* ACTIONS of node n; p and q are the others. The last six: it steps down; it hears of a
 * higher term, be it from a candidate that it refuses; it restarts. */
#define ACTIONS(n, p, q) \
	:: d_step { mayCampaign(n) -> campaign(n, p, q); tidy() } \
	:: d_step { mayTakeOver(n, 2) -> takeOver(n, p, q, 2); tidy() } \
	:: d_step { mayTakeOver(n, 3) -> takeOver(n, p, q, 3); tidy() } \
	:: d_step { mayVoteForSelf(n) -> vote[at(n, term[n])] = n; tidy() } \
	:: d_step { mayGrant(n, p, 2) -> grant(n, p, q, p, 2); tidy() } \
	:: d_step { mayGrant(n, q, 2) -> grant(n, p, q, q, 2); tidy() } \
	:: d_step { mayGrant(n, p, 3) -> grant(n, p, q, p, 3); tidy() } \
	:: d_step { mayGrant(n, q, 3) -> grant(n, p, q, q, 3); tidy() } \
	:: d_step { mayLead(n) -> lead(n, p, q); tidy() } \
	:: d_step { role[n] == leader -> begin(n, p, q, heartbeat); tidy() } \
	:: d_step { role[n] == leader -> begin(n, p, q, bare); tidy() } \
	:: d_step { mayAck(n, p) -> acknowledge(n, p, q, p); tidy() } \
	:: d_step { mayAck(n, q) -> acknowledge(n, p, q, q); tidy() } \
	:: d_step { isAnswer(round[n*N+p]) || isAnswer(round[n*N+q]) -> confirm(n, p, q); tidy() } \
	:: d_step { mayAnswer(n) -> answer(n, p, q); tidy() } \
	:: d_step { role[n] == leader && term[n] < TERMS -> transfer(n, p); tidy() } \
	:: d_step { role[n] == leader && term[n] < TERMS -> transfer(n, q); tidy() } \
	:: d_step { role[n] != follower -> drop(n, p, q); tidy() } \
	:: d_step { term[n] < term[p] -> raise(n, p, q, term[p]); tidy() } \
	:: d_step { term[n] < term[q] -> raise(n, p, q, term[q]); tidy() } \
	:: d_step { true -> restart(n, p, q, term[n]); tidy() } \
	:: d_step { durable(n) < term[n] -> restart(n, p, q, durable(n)); tidy() } \
	:: d_step { durable(n) < 2 && term[n] > 2 -> restart(n, p, q, 2); tidy() } \
	WAIVE(n) JOIN(n, p, q) READ(n)

#ifdef PROMISE_WAIVED_ON_REFUSAL /* a refused connection to the leader ends a promise */
#define WAIVE(n) :: d_step { promise[n] > 0 -> promise[n] = 0; tidy() }
#else
#define WAIVE(n)
#endif

#ifdef JOIN_ROUND_IN_FLIGHT /* a request joins a round that began before it arrived */
#define JOIN(n, p, q) \
	:: d_step { answered > term[n] && (round[n*N+p] != idle || round[n*N+q] != idle) -> late[n] = 1; tidy() }
#else
#define JOIN(n, p, q)
#endif

#ifdef LEASE_ON_OLD_CLOCK
#define READ(n) :: d_step { role[n] == leader -> read[n] = lease[n]; tidy() }
#else
#define READ(n)
#endif

/* A unit of time passes. Each node counts no tick (it is paused) or the most, and its
 * lease clock is slow or fast, all independent of each other: 64 ways. WORST_RATES leaves
 * the one way that is worst for the lease: enough to find a mistake. */
#define TIME         RATE0(0) RATE0(clockMax)
#define RATE0(i)     RATE1(i, leaseClockMin) RATE1(i, clockMax)
#define RATE1(i, x)  RATE2(i, x, 0) RATE2(i, x, clockMax)
#define RATE2(i, x, j) RATE3(i, x, j, leaseClockMin) RATE3(i, x, j, clockMax)
#define RATE3(i, x, j, y) RATE4(i, x, j, y, 0) RATE4(i, x, j, y, clockMax)
#define RATE4(i, x, j, y, k) RATE5(i, x, j, y, k, leaseClockMin) RATE5(i, x, j, y, k, clockMax)
#define RATE5(i, x, j, y, k, z) \
	:: d_step { true -> passes(0, 1, 2, i, x); passes(1, 0, 2, j, y); passes(2, 0, 1, k, z); tidy() }

init {
	role[0] = leader;
	do
	ACTIONS(0, 1, 2)
	ACTIONS(1, 0, 2)
	ACTIONS(2, 0, 1)
#ifdef WORST_RATES
	RATE5(clockMax, leaseClockMin, clockMax, leaseClockMin, clockMax, leaseClockMin)
#else
	TIME
#endif
	od
}
