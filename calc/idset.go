package calc

// idSet is a set of handles. Most label values are held by one or two things, a few by all: small sets are a slice,
// large ones a map. The zero value is empty.
type idSet struct {
	few  []uint32
	many map[uint32]struct{}
}

const idSetFew = 8

func (s *idSet) len() int { return len(s.few) + len(s.many) }

func (s *idSet) has(id uint32) bool {
	if s.many != nil {
		_, ok := s.many[id]
		return ok
	}
	for _, x := range s.few {
		if x == id {
			return true
		}
	}
	return false
}

func (s *idSet) add(id uint32) {
	switch {
	case s.has(id):
	case s.many != nil:
		s.many[id] = struct{}{}
	case len(s.few) < idSetFew:
		s.few = append(s.few, id)
	default:
		s.many = make(map[uint32]struct{}, 2*idSetFew)
		for _, x := range s.few {
			s.many[x] = struct{}{}
		}
		s.few, s.many[id] = nil, struct{}{}
	}
}

func (s *idSet) remove(id uint32) {
	if s.many != nil {
		delete(s.many, id)
		if len(s.many) == 0 {
			s.many = nil
		}
		return
	}
	for i, x := range s.few {
		if x == id {
			s.few[i] = s.few[len(s.few)-1]
			s.few = s.few[:len(s.few)-1]
			return
		}
	}
}

// each calls f with every member; f must not change the set.
func (s *idSet) each(f func(uint32)) {
	for _, x := range s.few {
		f(x)
	}
	for x := range s.many {
		f(x)
	}
}
