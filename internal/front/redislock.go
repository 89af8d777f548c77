package front

import "github.com/isotone/isotone/internal/core/redislock"

// RedisLocks has the leader's locks of clients of Redis libraries, for the fronts in one loop. It belongs to that loop's goroutine. A node that does not lead answers with an error
// that names the leader.
type RedisLocks interface {
	// AskRedisLock hands r over, and calls Done exactly once, not within the call.
	AskRedisLock(r *RedisLockRequest)
}

// RedisLockRequest is a request about such a lock. The backend owns it until Done.
type RedisLockRequest struct {
	redislock.Request
	// Err is in the vocabulary. The Reply counts if it is nil.
	Err  error
	Done func(*RedisLockRequest)
}
