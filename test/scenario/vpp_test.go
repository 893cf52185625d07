package scenario

import (
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/contiv-agent/contiv-agent/sim"
)

// vpp is the simulated VPP of a node.
func (s *story) vpp(node string) (*sim.VPP, error) {
	if v := s.world().Sim(node); v != nil {
		return v, nil
	}
	return nil, fmt.Errorf("there is no node %q", node)
}

// nodes returns the named nodes, or all.
func (s *story) nodes(args []string) []string {
	if len(args) > 0 {
		return args
	}
	return s.world().Nodes()
}

func (s *story) cmdDump(ts *testscript.TestScript, args []string) error {
	if len(args) == 0 || len(args) > 2 {
		return fmt.Errorf("want NODE [SECTION]")
	}
	v, err := s.vpp(args[0])
	if err != nil {
		return err
	}
	out, shown := ts.Stdout(), true
	for line := range strings.Lines(v.Dump()) {
		if len(args) == 2 && !strings.HasPrefix(line, " ") {
			shown = strings.Contains(line, args[1])
		}
		if shown {
			fmt.Fprint(out, line)
		}
	}
	return nil
}

func (s *story) cmdRestartVPP(_ *testscript.TestScript, args []string) error {
	for _, node := range s.nodes(args) {
		if _, err := s.vpp(node); err != nil {
			return err
		}
		if err := s.cluster.RestartVPP(background(), node); err != nil {
			return err
		}
	}
	return nil
}

func (s *story) cmdRestartAgent(_ *testscript.TestScript, args []string) error {
	for _, node := range s.nodes(args) {
		if _, err := s.vpp(node); err != nil {
			return err
		}
		if err := s.cluster.RestartAgent(background(), node); err != nil {
			return err
		}
	}
	return nil
}

func (s *story) cmdStopAgent(_ *testscript.TestScript, args []string) error {
	for _, node := range s.nodes(args) {
		if _, err := s.vpp(node); err != nil {
			return err
		}
		s.cluster.StopAgent(node)
	}
	return nil
}

func (s *story) cmdAdvance(_ *testscript.TestScript, args []string) error {
	if len(args) != 1 {
		return fmt.Errorf("want DURATION")
	}
	d, err := time.ParseDuration(args[0])
	if err != nil {
		return err
	}
	if err := s.advanceGuard(d); err != nil {
		return err
	}
	return s.world().Advance(background(), d)
}

func (s *story) cmdClearLog(_ *testscript.TestScript, args []string) error {
	for _, node := range s.nodes(args) {
		v, err := s.vpp(node)
		if err != nil {
			return err
		}
		v.ClearLog()
	}
	return nil
}

// written returns the requests since the log was cleared that change VPP.
func written(v *sim.VPP) []string {
	var out []string
	for _, r := range v.Log() {
		if r.Write {
			out = append(out, r.String())
		}
	}
	return out
}

func (s *story) cmdWrites(_ *testscript.TestScript, args []string) error {
	if len(args) != 2 {
		return fmt.Errorf("want NODE N")
	}
	v, err := s.vpp(args[0])
	if err != nil {
		return err
	}
	want, err := strconv.Atoi(args[1])
	if err != nil {
		return err
	}
	if list := written(v); len(list) != want {
		return fmt.Errorf("want %d writes, got %d:\n    %s", want, len(list), strings.Join(list, "\n    "))
	}
	return nil
}

func (s *story) cmdLog(ts *testscript.TestScript, args []string) error {
	if len(args) != 1 {
		return fmt.Errorf("want NODE")
	}
	v, err := s.vpp(args[0])
	if err != nil {
		return err
	}
	out := ts.Stdout()
	for _, line := range written(v) {
		fmt.Fprintln(out, line)
	}
	return nil
}

// faults are the requests that a VPP refuses.
type faults struct {
	mu    sync.Mutex
	rules map[string]*fault
}

type fault struct {
	retval int32
	cut    bool // the connection, instead
	left   int  // -1: without end
}

func (f *faults) answer(message string) (int32, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	r := f.rules[message]
	if r == nil || r.left == 0 {
		return 0, false
	}
	if r.left > 0 {
		r.left--
	}
	return r.retval, r.cut
}

func (s *story) cmdFail(_ *testscript.TestScript, args []string) error {
	if len(args) != 3 && len(args) != 4 {
		return fmt.Errorf("want NODE MESSAGE RETVAL|cut [TIMES]")
	}
	v, err := s.vpp(args[0])
	if err != nil {
		return err
	}
	cut, retval := args[2] == "cut", int64(0)
	if !cut {
		if retval, err = strconv.ParseInt(args[2], 10, 32); err != nil {
			return err
		}
	}
	times := -1
	if len(args) == 4 {
		if times, err = strconv.Atoi(args[3]); err != nil {
			return err
		}
	}
	f := s.faults[args[0]]
	if f == nil {
		f = &faults{rules: map[string]*fault{}}
		s.faults[args[0]] = f
	}
	f.mu.Lock()
	f.rules[args[1]] = &fault{retval: int32(retval), cut: cut, left: times}
	if retval == 0 && !cut {
		delete(f.rules, args[1])
	}
	f.mu.Unlock()
	v.Fail(f.answer)
	return nil
}
