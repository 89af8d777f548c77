package server

import (
	"fmt"
	"path/filepath"

	"github.com/isotone/isotone/internal/host/backup"
	"github.com/isotone/isotone/internal/host/config"
	"github.com/isotone/isotone/internal/host/storage"
	"github.com/isotone/isotone/internal/node"
	"github.com/isotone/isotone/internal/operator"
)

// CheckData refuses to start a node that would form a cluster by mistake: alone, or with an empty data
// directory. It may change the settings to those with which the node forms none.
func CheckData(s *config.Settings) error {
	if err := checkAlone(s); err != nil {
		return err
	}
	return checkEmpty(s)
}

// checkAlone refuses to form a cluster of this node alone where that is a mistake; see
// [config.Settings.CheckAlone].
func checkAlone(s *config.Settings) error {
	if s.CheckAlone(false) == nil {
		return nil
	}
	rec, err := storage.Inspect(s.DataDir)
	if err != nil {
		return err
	}
	need, err := node.NeedsPeers(rec)
	switch {
	case err != nil:
		return fmt.Errorf("DATA_DIR: %w", err)
	case !need:
		return nil
	}
	seed, err := backup.ReadSeed(s.DataDir)
	if err != nil {
		return err
	}
	if refusal := s.CheckAlone(seed != nil); refusal != nil {
		return operator.UsageError(refusal.Error())
	}
	return nil
}

// checkEmpty refuses to form a cluster with an empty data directory where REQUIRE_DATA is set: the volume
// with the data may not be mounted. With JOIN a directory may be empty, because the cluster decides
// whether this node is a new one; then the node forms none.
func checkEmpty(s *config.Settings) error {
	if !s.RequireData || s.Join != nil && s.PeersSRV == nil {
		return nil
	}
	empty, err := isEmpty(s.DataDir)
	switch {
	case err != nil || !empty:
		return err
	case s.Join != nil:
		s.PeersSRV = nil
		return nil
	}
	dir := s.DataDir
	if abs, err := filepath.Abs(dir); err == nil {
		dir = abs // for people, who may be in another directory
	}
	return fmt.Errorf("the data directory %s has no data, and REQUIRE_DATA is set: is its volume mounted? "+
		"If this node never ran before, permit its first start: isotone init --data-dir %s", dir, dir)
}

// isEmpty reports whether a node that is started from dir would begin without data: none ever ran
// there, no backup was restored into it, and the first start is not permitted.
func isEmpty(dir string) (bool, error) {
	if hasData, err := storage.HasData(dir); err != nil || hasData {
		return false, err
	}
	if seed, err := backup.ReadSeed(dir); err != nil || seed != nil {
		return false, err
	}
	permitted, err := storage.FirstPermitted(dir)
	return !permitted, err
}
