package live

import (
	"context"

	"github.com/isotone/isotone/internal/live/store"
)

// database is a document in a database, which a process of its own loads.
type database struct {
	process store.Process
	shown   string
}

// parseDatabase reads the URL of a document in MongoDB or Postgres.
func parseDatabase(text string) (open func() loader, err error) {
	u, err := store.Parse(text)
	if err != nil {
		return nil, err
	}
	return func() loader { return &database{process: store.Process{URL: text}, shown: u.Shown} }, nil
}

func (d *database) load(ctx context.Context, sizeMax int) ([]byte, error) {
	return d.process.Load(ctx, sizeMax)
}

func (d *database) close() { d.process.Close() }

func (d *database) String() string { return d.shown }
