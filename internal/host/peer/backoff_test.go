package peer

import "testing"

func TestBackoff_GrowsToItsLimitAndStartsAgain(t *testing.T) {
	var b backoff
	for i, want := range []int64{0, 20, 40, 80, 100, 100} {
		if got := b.next(0).Milliseconds(); got != want {
			t.Fatalf("attempt %d after %d ms, want %d", i, got, want)
		}
	}
	if got := b.next(1); got != dialBackoffMax/2 {
		t.Fatalf("full jitter: %v", got)
	}
	b.reset()
	if got := b.next(0); got != dialBackoffMin {
		t.Fatalf("after a reset: %v", got)
	}
	b.refused()
	if got := b.next(0); got != dialRefusedWait {
		t.Fatalf("after a refusal: %v", got)
	}
}
