package controller

import (
	"fmt"

	"github.com/contiv-agent/contiv-agent/kv"
)

// A source comes into sync, then one service changes: a full resync, then a transaction with one value.
func ExampleController() {
	processor := newRecorder()
	c := connected(Config{Sources: []string{"test"}}, processor)

	c.Step(update("web", 80))
	txn := c.Step(inSync("test"))
	fmt.Println(txn.Seq, txn.Cause, txn.Resync, kv.Values(txn.Values).Keys())
	c.Step(done(txn))

	txn = c.Step(update("web", 8080))
	fmt.Println(txn.Seq, txn.Cause, txn.Resync, kv.Values(txn.Values).Keys())
	// Output:
	// 1 first sync full-resync [config/vpp/nat/v2/dnat44/default/web]
	// 2 service/default/web update [config/vpp/nat/v2/dnat44/default/web]
}
