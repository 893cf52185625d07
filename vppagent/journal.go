package vppagent

import (
	"github.com/contiv-agent/contiv-agent/kv"
	"github.com/contiv-agent/contiv-agent/vppagent/journal"
)

// openJournal makes the recorded objects values that are ours and not wanted yet.
func (a *Agent) openJournal() {
	a.journal = &journal.Journal{Path: a.cfg.Journal}
	if a.cfg.Journal == "" {
		return
	}
	if err := a.journal.Load(); err != nil {
		a.cfg.Logger.Warn("journal", "err", err)
	}
	for key, line := range a.journal.Entries() {
		_, m, err := kv.ParseLine(line)
		v := a.g.nodeOf(key)
		if err == nil && v.kind != nil && v.kind.journalled() {
			v.have, err = v.kind.Compile(key, m)
		}
		if err != nil || v.have == nil {
			a.cfg.Logger.Warn("journal: left out", "key", key, "err", err)
			a.journal.Drop(key)
			v.have = nil
			a.g.collect(v)
			continue
		}
		v.ours, v.unsure = true, true
		a.g.setDeps(v)
	}
}

func (a *Agent) saveJournal() {
	if err := a.journal.Save(a.cfg.Now()); err != nil {
		a.cfg.Logger.Warn("journal", "err", err)
	}
}
