package main

import "slices"

// cache keeps the answers that were used last. It is not safe for concurrent use: its
// worker does one thing at a time.
type cache struct {
	size int
	kept []kept // the latest used is last
}

type kept struct{ word, answer string }

// get returns the answer to word, if it is there.
func (c *cache) get(word string) (answer string, ok bool) {
	i := slices.IndexFunc(c.kept, func(k kept) bool { return k.word == word })
	if i < 0 {
		return "", false
	}
	k := c.kept[i]
	c.kept = append(slices.Delete(c.kept, i, i+1), k)
	return k.answer, true
}

// put keeps an answer that was not there, and forgets the one that was not used for
// longest.
func (c *cache) put(word, answer string) {
	if c.size == 0 {
		return
	}
	if len(c.kept) == c.size {
		c.kept = slices.Delete(c.kept, 0, 1)
	}
	c.kept = append(c.kept, kept{word, answer})
}
