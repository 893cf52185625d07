package sim

import (
	"fmt"

	"go.fd.io/govpp/binapi/interface_types"
	"go.fd.io/govpp/binapi/pipe"
)

const maxPipe = 16 << 10 // PIPE_MAX_INSTANCE, vnet/devices/pipe/pipe.c

// pipeMessages: a pipe is two interfaces in one VPP; what leaves by one arrives by the other.
func pipeMessages(t *apiTable) {
	onWrite(t, func(q *call, m *pipe.PipeCreate) *pipe.PipeCreateReply {
		return q.createPipe(m.IsSpecified, m.UserInstance)
	})
	onWrite(t, func(q *call, m *pipe.PipeDelete) *pipe.PipeDeleteReply {
		f := q.ifs.get(uint32(m.SwIfIndex))
		if f != nil && f.kind == kindPipeEnd {
			f = q.ifs.get(f.pipe[0]) // either end will do, too
		}
		if f == nil || f.kind != kindPipe {
			return &pipe.PipeDeleteReply{Retval: rvInvalidSwIfIndex}
		}
		q.setUp(f, false)
		for _, end := range f.pipe {
			q.destroy(q.ifs.get(end))
		}
		q.destroy(f)
		return &pipe.PipeDeleteReply{}
	})
	onDump(t, func(q *call, _ *pipe.PipeDump, send func(*pipe.PipeDetails)) {
		for _, f := range q.ifs.all() {
			if f.kind == kindPipe {
				send(&pipe.PipeDetails{SwIfIndex: ifIndex(f), PipeSwIfIndex: f.pipeIndices(), Instance: f.id})
			}
		}
	})
}

func (f *iface) pipeIndices() [2]interface_types.InterfaceIndex {
	return [2]interface_types.InterfaceIndex{interface_types.InterfaceIndex(f.pipe[0]), interface_types.InterfaceIndex(f.pipe[1])}
}

func (v *VPP) createPipe(given bool, id uint32) *pipe.PipeCreateReply {
	if !given {
		id = v.freeID(kindPipe)
	}
	name := fmt.Sprintf("pipe%d", id)
	if id >= maxPipe || v.ifs.byName[name] != nil {
		return &pipe.PipeCreateReply{Retval: rvInvalidRegistration, SwIfIndex: interface_types.InterfaceIndex(noIndex)}
	}
	parent := v.create(&iface{name: name, kind: kindPipe, devType: "Pipe", id: id, mac: [6]byte{5: byte(id)}})
	for i := range parent.pipe {
		end := v.create(&iface{name: fmt.Sprintf("%s.%d", name, i), kind: kindPipeEnd, devType: "Pipe"})
		parent.pipe[i] = end.index
	}
	for i, own := range parent.pipe {
		v.ifs.get(own).pipe = [2]uint32{parent.index, parent.pipe[1-i]}
	}
	return &pipe.PipeCreateReply{SwIfIndex: ifIndex(parent), PipeSwIfIndex: parent.pipeIndices()}
}

// through lets a packet that left by one end arrive by the other.
func (f *flow) through(end *iface) {
	other := f.v.ifs.get(end.pipe[1])
	if f.steps++; f.steps > maxSteps {
		f.drop(end.name+"-tx", "went round %d times", maxSteps)
		return
	}
	f.hop(end.name+"-tx", "to %s", other.name).Send(end.name)
	if !other.up || !f.v.ifs.get(end.pipe[0]).up {
		f.drop("pipe-rx", "interface %s is down", other.name)
		return
	}
	f.tx = noIndex
	f.input(other)
}
