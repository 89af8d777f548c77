package storage

import "github.com/isotone/isotone/internal/core/journal"

// What a directory holds, and what is wrong with it.
type (
	Identity     = journal.Identity
	Write        = journal.Write
	Recovered    = journal.Recovered
	CorruptError = journal.CorruptError
	FormatError  = journal.FormatError
	LimitError   = journal.LimitError
)
