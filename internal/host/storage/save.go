package storage

import (
	"fmt"
	"os"
)

// Save applies all writes in order, all or none of them. They are durable when Save returns nil: after
// one fdatasync, or two fsyncs if a new file was written. Without writes it does nothing.
//
// Any error is final (I8): every later Save returns the same error, which matches [ErrFailed].
// Nothing of the failed call counts as saved, although the next Open may find it. The one
// exception is a Save after Close, whose error matches [os.ErrClosed].
func (s *Store) Save(writes ...Write) error {
	switch {
	case s.failed != nil:
		return s.failed
	case s.closed:
		return fmt.Errorf("storage: save: %w", os.ErrClosed)
	case len(writes) == 0:
		return nil
	}
	s.failed = s.commit(func() error { return s.journal.Save(writes...) })
	return s.failed
}

// commit runs f, which makes changes durable and only then adopts them.
func (s *Store) commit(f func() error) error {
	if s.beforeCommit != nil {
		if err := s.beforeCommit(); err != nil {
			return s.failure(err)
		}
	}
	if err := f(); err != nil {
		return s.failure(err)
	}
	return nil
}

func (s *Store) failure(err error) error {
	return fmt.Errorf("storage: %s: %w: %w", s.path, ErrFailed, err)
}
