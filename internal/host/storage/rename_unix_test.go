//go:build unix && !aix && !solaris

package storage_test

import (
	"os"
	"testing"

	"github.com/isotone/isotone/internal/host/storage"
)

// TestStore_LeavesASpareFileWhereNamesCannotBeExchanged: it shows that there is a data file.
func TestStore_LeavesASpareFileWhereNamesCannotBeExchanged(t *testing.T) {
	defer storage.RenameOnly()()
	dir := t.TempDir()
	s, _ := open(t, options(dir))
	for start := range 3 {
		var r storage.Recovered
		if s, r = reopen(t, s, dir); r.Fresh || r.Identity.Boot != uint64(start+2) {
			t.Fatalf("%+v", r)
		}
	}
	save(t, s, script()[0])
	closeStore(t, s)
	if i := imageOf(t, dir); i.spare == nil {
		t.Error("there is no spare file")
	}
	if err := os.Remove(dir + "/" + storage.FileName); err != nil {
		t.Fatal(err)
	}
	if err := storage.CheckNew(dir); err == nil {
		t.Error("nobody notices that the data file is gone")
	}
}
