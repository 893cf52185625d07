package cni

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"

	"github.com/contiv-agent/contiv-agent/plugins/cni/protocol"
)

// A DEL ends the ADDs of its attachment that run or wait, and neither those of other interfaces nor those behind it.
func TestDeleteEndsEarlierAddsOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		turns := newTurns()
		eth0, net1 := protocol.Attachment{ContainerID: "c", IfName: "eth0"}, protocol.Attachment{ContainerID: "c", IfName: "net1"}
		running, leave, err := turns.enter(t.Context(), eth0, true, false)
		if err != nil {
			t.Fatal(err)
		}
		var order []string
		enter := func(name string, a protocol.Attachment, adds, deletes bool) {
			go func() {
				_, leave, err := turns.enter(t.Context(), a, adds, deletes)
				if err != nil {
					order = append(order, name+" ended")
					return
				}
				order = append(order, name)
				leave()
			}()
			synctest.Wait()
		}
		enter("waiting", eth0, true, false)
		enter("net1", net1, true, false)
		enter("del", eth0, false, true)
		if !errors.Is(context.Cause(running), errOvertaken) {
			t.Errorf("the running ADD: %v", context.Cause(running))
		}
		if len(order) != 1 || order[0] != "waiting ended" {
			t.Errorf("while the ADD runs: %q", order)
		}
		enter("later", eth0, true, false)
		leave()
		synctest.Wait()
		if len(order) != 4 || order[1] != "net1" || order[2] != "del" || order[3] != "later" {
			t.Errorf("order %q", order)
		}
		if len(turns.lines) > 0 || turns.working > 0 {
			t.Errorf("left: %+v, %d", turns.lines, turns.working)
		}
	})
}

// A GC works alone, also if calls arrive all the time; one that gives up lets the others continue.
func TestCollectWorksAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		turns := newTurns()
		a := protocol.Attachment{ContainerID: "c", IfName: "eth0"}
		_, leave, err := turns.enter(t.Context(), a, true, false)
		if err != nil {
			t.Fatal(err)
		}
		impatient, giveUp := context.WithCancel(t.Context())
		gaveUp := make(chan error, 1)
		go func() { _, _, err := turns.enterAlone(impatient); gaveUp <- err }()
		synctest.Wait()
		entered := make(chan func(), 1)
		go func() {
			_, leave, _ := turns.enter(t.Context(), protocol.Attachment{ContainerID: "d", IfName: "eth0"}, true, false)
			entered <- leave
		}()
		synctest.Wait()
		if len(entered) > 0 {
			t.Error("a call overtakes the GC that waits")
		}
		giveUp()
		if err := <-gaveUp; err == nil {
			t.Error("the GC did not give up")
		}
		second := <-entered
		alone := make(chan []protocol.Attachment, 1)
		var end func()
		go func() {
			adding, leave, _ := turns.enterAlone(t.Context())
			end = leave
			alone <- adding
		}()
		synctest.Wait()
		leave()
		synctest.Wait()
		if len(alone) > 0 {
			t.Error("the GC works beside a call")
		}
		second()
		if adding := <-alone; len(adding) != 2 {
			t.Errorf("spares %v", adding)
		}
		end()
		_, leave, err = turns.enter(t.Context(), a, true, false)
		if err != nil {
			t.Fatal(err)
		}
		leave()
	})
}
