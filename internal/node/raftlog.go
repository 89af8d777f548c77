package node

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
)

// raftLog writes Raft's log lines. Raft says at info level what only a debugger of
// elections wants to read.
type raftLog struct{ log *slog.Logger }

func (l raftLog) Debug(v ...any)              { l.log.Debug("raft: " + fmt.Sprint(v...)) }
func (l raftLog) Info(v ...any)               { l.log.Debug("raft: " + fmt.Sprint(v...)) }
func (l raftLog) Warning(v ...any)            { l.log.Info("raft: " + fmt.Sprint(v...)) }
func (l raftLog) Error(v ...any)              { l.log.Error("raft: " + fmt.Sprint(v...)) }
func (l raftLog) Debugf(f string, v ...any)   { l.debugf(f, v) }
func (l raftLog) Infof(f string, v ...any)    { l.debugf(f, v) }
func (l raftLog) Warningf(f string, v ...any) { l.log.Info("raft: " + fmt.Sprintf(f, v...)) }
func (l raftLog) Errorf(f string, v ...any)   { l.log.Error("raft: " + fmt.Sprintf(f, v...)) }

// Raft calls Fatal and Panic for broken assumptions of its own; it does not expect
// them to return.
func (l raftLog) Fatal(v ...any)            { panic("raft: " + fmt.Sprint(v...)) }
func (l raftLog) Fatalf(f string, v ...any) { panic("raft: " + fmt.Sprintf(f, v...)) }
func (l raftLog) Panic(v ...any)            { panic("raft: " + fmt.Sprint(v...)) }
func (l raftLog) Panicf(f string, v ...any) { panic("raft: " + fmt.Sprintf(f, v...)) }

// debugf formats only what will be written: Raft logs much at these levels.
func (l raftLog) debugf(f string, v []any) {
	// A write that was confirmed twice, as happens all the time, is no news.
	if !strings.HasPrefix(f, "entry at index") && l.log.Enabled(context.Background(), slog.LevelDebug) {
		l.log.Debug("raft: " + fmt.Sprintf(f, v...))
	}
}
