package txn

import (
	"encoding/binary"
	"time"

	"github.com/isotone/isotone"
)

// lock is what a transaction writes into a row before it commits. It holds the value that the row
// gets if the transaction commits, so whoever meets it can finish the work.
type lock struct {
	start isotone.Timestamp64
	// expires is a millisecond of the oracle's time. When the oracle has issued a timestamp with a
	// later one, others may roll the transaction back. Only that of the primary's lock counts, once
	// that lock is there.
	expires uint64
	// ttl is how long the transaction may show no sign of life: its locks expire that long after the
	// last one, also by the steady clock of whoever watches. Whole milliseconds.
	ttl     time.Duration
	primary ref
	deleted bool
	value   []byte
}

// ref names a row: the space, which is the name of a store, and the key.
type ref struct{ space, key string }

// A lock is encoded as a format byte, a byte of flags, start and expires with 8 bytes each, the TTL in
// milliseconds (4 bytes), the length of the space (1 byte), that of the key (2 bytes), the space, the key,
// and the value.
const (
	lockFormat   = 2
	lockDeleted  = 1
	lockHeadSize = 1 + 1 + 8 + 8 + 4 + 1 + 2
)

func (l *lock) encode() []byte {
	b := make([]byte, 0, lockHeadSize+len(l.primary.space)+len(l.primary.key)+len(l.value))
	flags := byte(0)
	if l.deleted {
		flags = lockDeleted
	}
	b = append(b, lockFormat, flags)
	b = binary.BigEndian.AppendUint64(b, uint64(l.start))
	b = binary.BigEndian.AppendUint64(b, l.expires)
	b = binary.BigEndian.AppendUint32(b, uint32(l.ttl.Milliseconds()))
	b = append(b, byte(len(l.primary.space)))
	b = binary.BigEndian.AppendUint16(b, uint16(len(l.primary.key)))
	b = append(b, l.primary.space...)
	b = append(b, l.primary.key...)
	return append(b, l.value...)
}

// decodeLock decodes a lock. The value of the result shares memory with b.
func decodeLock(b []byte) (*lock, error) {
	if len(b) < lockHeadSize || b[0] != lockFormat || b[1]&^lockDeleted != 0 {
		return nil, isotone.Errorf(isotone.CodeInternal, "a lock of %d bytes is not one of format %d", len(b), lockFormat)
	}
	l := &lock{
		deleted: b[1] == lockDeleted,
		start:   isotone.Timestamp64(binary.BigEndian.Uint64(b[2:])),
		expires: binary.BigEndian.Uint64(b[10:]),
		ttl:     time.Duration(binary.BigEndian.Uint32(b[18:])) * time.Millisecond,
	}
	space, key := int(b[22]), int(binary.BigEndian.Uint16(b[23:]))
	b = b[lockHeadSize:]
	if space == 0 || key == 0 || len(b) < space+key || l.start == 0 || l.deleted && len(b) > space+key {
		return nil, isotone.Errorf(isotone.CodeInternal, "a lock is malformed")
	}
	l.primary = ref{space: string(b[:space]), key: string(b[space : space+key])}
	l.value = b[space+key:]
	return l, nil
}

// lockOf returns the lock of a row that DB.read returned together with points; nil if there is none, or
// only a void one.
func lockOf(row *Row, points Points) (*lock, error) {
	if len(row.Lock) == 0 {
		return nil, nil
	}
	l, err := decodeLock(row.Lock)
	if err != nil || isVoid(l, points) {
		return nil, err
	}
	return l, nil
}

// version returns what the row gets if the transaction of the lock commits at that timestamp.
func (l *lock) version(commit isotone.Timestamp64) Version {
	return Version{Commit: commit, Deleted: l.deleted, Value: l.value}
}

// isExpired reports whether the oracle's time is past expires, given that it issued now.
func isExpired(expires uint64, now isotone.Timestamp64) bool { return now.Milli() > expires }
