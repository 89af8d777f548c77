package demoscale

import "slices"

// cache keeps the most recently used answers (LRU). It is not safe for concurrent use.
type cache struct {
	size int
	kept []kept // the most recently used is last
}

type kept struct{ word, answer string }

// get returns the cached answer to word.
func (c *cache) get(word string) (answer string, ok bool) {
	i := slices.IndexFunc(c.kept, func(k kept) bool { return k.word == word })
	if i < 0 {
		return "", false
	}
	k := c.kept[i]
	c.kept = append(slices.Delete(c.kept, i, i+1), k)
	return k.answer, true
}

// put adds a new answer, and evicts the least recently used one if the cache is full.
func (c *cache) put(word, answer string) {
	if c.size == 0 {
		return
	}
	if len(c.kept) == c.size {
		c.kept = slices.Delete(c.kept, 0, 1)
	}
	c.kept = append(c.kept, kept{word, answer})
}
