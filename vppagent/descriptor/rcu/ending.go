package rcu

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strconv"
	"time"
)

// endingPeriod is how often Hasten looks at VPP's process.
const endingPeriod = 100 * time.Millisecond

// Hasten shortens the end of VPP's process until ctx ends. The kernel closes the files of a process that was killed, and those of af_packet interfaces
// wait for RCU grace periods; the connection to the agent is closed last, and nobody can start the next VPP before. pid returns VPP's process, 0 for
// none. If VPP's process is not visible to the agent, nothing is shortened.
func (e Expedite) Hasten(ctx context.Context, pid func() uint32) {
	if e.Switch == "" {
		return
	}
	tick := time.NewTicker(endingPeriod)
	defer tick.Stop()
	h := Hastening{Expedite: e, Proc: "/proc"}
	defer h.Look(0)
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			h.Look(pid())
		}
	}
}

// Hastening switches on while a process ends. One goroutine at a time may use it.
type Hastening struct {
	Expedite
	Proc string // the kernel's folder of processes

	ends uint32 // the process that ends; 0: none
	undo func() // switches off
}

// Look looks at VPP's process, or at the one that ends, and switches on or off.
func (h *Hastening) Look(pid uint32) {
	if h.ends != 0 {
		if pid != 0 && h.runs(h.ends) {
			return
		}
		h.undo()
		h.ends = 0
	}
	if pid != 0 && h.dies(pid) {
		h.ends, h.undo = pid, h.on()
	}
}

// dies reports that VPP's process has begun to end and still has files.
func (h *Hastening) dies(pid uint32) bool {
	name, _, flags := readTask(filepath.Join(h.Proc, strconv.FormatUint(uint64(pid), 10), "stat"))
	const exiting = 4 // PF_EXITING of include/linux/sched.h
	return name == "vpp_main" && flags&exiting != 0 && h.runs(pid)
}

// runs reports that a thread of a process has not ended: the last one closes the files.
func (h *Hastening) runs(pid uint32) bool {
	files, _ := filepath.Glob(filepath.Join(h.Proc, strconv.FormatUint(uint64(pid), 10), "task", "*", "stat")) // Glob fails only for a malformed pattern, and this one has no brackets
	for _, f := range files {
		if _, state, _ := readTask(f); state != "" && state != "Z" && state != "X" {
			return true
		}
	}
	return false
}

// readTask reads the name of a thread, its state and its flags (proc(5), /proc/pid/stat). They are zero if the thread is gone.
func readTask(path string) (name, state string, flags uint64) {
	b, err := os.ReadFile(path)
	begin, end := bytes.IndexByte(b, '('), bytes.LastIndexByte(b, ')')
	if err != nil || begin < 0 || end < begin {
		return "", "", 0
	}
	fields := bytes.Fields(b[end+1:])
	const flagsAt = 6 // behind the name
	if len(fields) <= flagsAt {
		return "", "", 0
	}
	flags, _ = strconv.ParseUint(string(fields[flagsAt]), 10, 64) // the kernel writes a number
	return string(b[begin+1 : end]), string(fields[0]), flags
}
