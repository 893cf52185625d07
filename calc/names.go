package calc

import (
	"github.com/contiv-agent/contiv-agent/model"

	"github.com/contiv-agent/contiv-agent/calc/labelindex"
)

// workloadNames assigns numbers to the workloads of the cluster. Many workloads share three of their four names, so
// these are stored once.
type workloadNames struct {
	places  map[workloadPlace]*placeCount
	byPlace map[workloadName]uint32
	ids     labelindex.Handles
}

type workloadPlace struct{ node, orchestrator, endpoint string }

type placeCount struct {
	id, workloads uint32
}

type workloadName struct {
	place    uint32
	workload string
}

func newWorkloadNames() workloadNames {
	return workloadNames{places: map[workloadPlace]*placeCount{}, byPlace: map[workloadName]uint32{}}
}

// number returns the number of a workload; a new workload gets the next number of items.
func (x *workloadNames) number(id model.WorkloadID, items *labelindex.Handles) uint32 {
	place := workloadPlace{id.Node, id.Orchestrator, id.Endpoint}
	p := x.places[place]
	if p == nil {
		p = &placeCount{id: x.ids.Assign()}
		x.places[place] = p
	}
	name := workloadName{p.id, id.Workload}
	h, ok := x.byPlace[name]
	if !ok {
		h = items.Assign()
		x.byPlace[name] = h
		p.workloads++
	}
	return h
}

// dropWorkload removes a workload and returns the number it had.
func (x *workloadNames) dropWorkload(id model.WorkloadID) (number uint32, ok bool) {
	place := workloadPlace{id.Node, id.Orchestrator, id.Endpoint}
	p := x.places[place]
	if p == nil {
		return 0, false
	}
	name := workloadName{p.id, id.Workload}
	number, ok = x.byPlace[name]
	if !ok {
		return 0, false
	}
	delete(x.byPlace, name)
	if p.workloads--; p.workloads == 0 {
		delete(x.places, place)
		x.ids.GiveBack(p.id)
	}
	return number, true
}
