package redisstore

import (
	"bytes"
	"context"
	"slices"
	"sync"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/txn"
)

const (
	// scanRowsMax bounds the rows of one script: Redis serves nobody else meanwhile. A script with
	// that many small rows takes about a millisecond.
	scanRowsMax = 256
	// scanBytesMax bounds the values and locks in one answer to a scan, together with the largest row.
	scanBytesMax = 4 << 20
	// scanRowsMin is added to a part's share of the rows, because parts have different shares of a
	// range.
	scanRowsMin = 8
)

// Scan implements txn.Store.
func (s *Store) Scan(ctx context.Context, r txn.Range, at isotone.Timestamp64) (txn.Page, error) {
	n := len(s.parts)
	if n == 1 {
		return s.scanPart(ctx, s.parts[0], r, at, scanBytesMax)
	}
	share := r
	share.Limit = min(r.Limit, 2*r.Limit/n+scanRowsMin)
	pages := make([]txn.Page, n)
	errs := make([]error, n)
	var wg sync.WaitGroup
	for i, p := range s.parts {
		wg.Go(func() { pages[i], errs[i] = s.scanPart(ctx, p, share, at, scanBytesMax/n) })
	}
	wg.Wait()
	for _, err := range errs {
		if err != nil {
			return txn.Page{}, err
		}
	}
	page := merge(pages, r.Limit)
	var err error
	page.Points, err = s.Points(ctx)
	if err != nil {
		return txn.Page{}, err
	}
	return page, nil
}

// merge merges the pages of all parts, as far as all of them go.
func merge(pages []txn.Page, limit int) txn.Page {
	var (
		out txn.Page
		end []byte // the smallest of the last keys of parts that may have more rows
	)
	for _, page := range pages {
		out.Entries = append(out.Entries, page.Entries...)
		if !page.More {
			continue
		}
		last := page.Entries[len(page.Entries)-1].Key
		if !out.More || bytes.Compare(last, end) < 0 {
			end = last
		}
		out.More = true
	}
	slices.SortFunc(out.Entries, func(a, b txn.Entry) int { return bytes.Compare(a.Key, b.Key) })
	if out.More {
		out.Entries = slices.DeleteFunc(out.Entries, func(e txn.Entry) bool { return bytes.Compare(e.Key, end) > 0 })
	}
	if len(out.Entries) > limit {
		clear(out.Entries[limit:])
		out.Entries, out.More = out.Entries[:limit], true
	}
	return out
}

func (s *Store) scanPart(ctx context.Context, p part, r txn.Range, at isotone.Timestamp64, size int) (txn.Page, error) {
	from, to := "-", "+"
	if len(r.From) > 0 {
		from = "[" + string(r.From)
	}
	if len(r.To) > 0 {
		to = "(" + string(r.To)
	}
	answer, err := s.do(ctx, call{
		name: "scan", script: scanScript,
		keys: s.withPoints(p.none, p.keys),
		args: []any{from, to, encode(at), min(r.Limit, scanRowsMax), size, p.row, p.stamps},
	})
	if err != nil {
		return txn.Page{}, err
	}
	var d decoder
	list := d.list(answer, 3)
	page := txn.Page{More: list[1] == int64(1), Points: d.points(list[0])}
	for _, entry := range d.list(list[2], -1) {
		pair := d.list(entry, 2)
		page.Entries = append(page.Entries, txn.Entry{Key: []byte(d.text(pair[0])), Row: d.row(pair[1], 0)})
	}
	if err := d.err(); err != nil {
		return txn.Page{}, err
	}
	if page.More && len(page.Entries) == 0 {
		d.bad = true
		return txn.Page{}, d.err()
	}
	return page, nil
}
