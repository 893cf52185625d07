package cnat

import "net/netip"

// client is an address of the plugin: a VIP, or the source of a flow that ip4-cnat-tx has translated, for the reverse direction.
type client struct {
	addr         netip.Addr
	exclusive    bool
	translations int
	sessions     int // in VPP's counting, which is not always balanced
}

// addClient is cnat_client_add: an existing address is not changed.
func (e *Engine) addClient(a netip.Addr, exclusive bool) *client {
	if c := e.clients[a]; c != nil {
		return c
	}
	c := &client{addr: a, exclusive: exclusive}
	e.putClient(c)
	e.undo(func() { e.dropClient(c) })
	return c
}

func (e *Engine) putClient(c *client) {
	e.clients[c.addr] = c
	e.net.Own(c.addr, c.exclusive)
}

func (e *Engine) dropClient(c *client) {
	e.net.Disown(c.addr)
	delete(e.clients, c.addr)
}

func (e *Engine) destroyIdle(c *client) {
	if c.translations != 0 || c.sessions != 0 {
		return
	}
	e.dropClient(c)
	e.undo(func() { e.putClient(c) })
}

// countSessions changes the number of a client's sessions.
func (e *Engine) countSessions(c *client, n int) {
	c.sessions += n
	e.undo(func() { c.sessions -= n })
}

// learn is cnat_client_learn: the address of a flow's source becomes one of the plugin.
func (e *Engine) learn(a netip.Addr) {
	c := e.clients[a]
	if c == nil {
		c = e.addClient(a, false)
	}
	e.countSessions(c, 1)
}

// forgetSession is cnat_client_free_by_ip.
func (e *Engine) forgetSession(a netip.Addr) {
	c := e.clients[a]
	if c == nil {
		panic(&Crash{"a session ends whose client " + a.String() + " is gone: SIGSEGV in cnat_client_free_by_ip"})
	}
	e.countSessions(c, -1)
	e.destroyIdle(c)
}
