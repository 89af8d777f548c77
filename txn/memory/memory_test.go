package memory_test

import (
	"testing"

	"github.com/isotone/isotone/txn"
	"github.com/isotone/isotone/txn/memory"
	"github.com/isotone/isotone/txn/storetest"
)

func TestStore_KeepsTheContract(t *testing.T) {
	storetest.Run(t, func(*testing.T) txn.Store { return memory.New() })
}
