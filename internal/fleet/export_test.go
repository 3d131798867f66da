//go:build unix

package fleet

// ServerPIDs returns the running server processes of a process fleet.
func ServerPIDs(f *Fleet) []int {
	var pids []int
	for _, n := range f.nodes {
		if p, ok := n.backend.(*process); ok {
			if c := p.running.Load(); c != nil {
				pids = append(pids, c.cmd.Process.Pid)
			}
		}
	}
	return pids
}
