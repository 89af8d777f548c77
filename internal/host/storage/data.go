package storage

import "github.com/isotone/isotone/internal/core/journal"

// What a directory holds, and what is wrong with it, is the same in both formats.
type (
	Identity     = journal.Identity
	Write        = journal.Write
	Recovered    = journal.Recovered
	CorruptError = journal.CorruptError
	FormatError  = journal.FormatError
	LimitError   = journal.LimitError
)

const (
	// FormatBolt is a file of bbolt. Every directory begins with it.
	FormatBolt = journal.FormatBolt
	// FormatJournal is a file to which each Save appends.
	FormatJournal = journal.FormatJournal
	// FormatNewest is the newest format that this version reads.
	FormatNewest = journal.FormatNewest
)
