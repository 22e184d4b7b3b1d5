# SPDX-License-Identifier: Apache-2.0
"""Schedules as data, and algorithms written in Python: proved, costed, drawn, run."""

import array
import os
import unittest
import xml.etree.ElementTree

import tutti


@tutti.register
class Line:
    """Sums along the line of ranks, then hands the sum back."""

    name, summary, collectives = "python-line", "along the line and back", ["all_reduce"]

    def schedule(self, q, s):
        lane, last = s.lane(), q.nranks - 1
        if last == 0:
            lane.copy(tutti.OUT(), tutti.IN()).final()
        elif q.rank == 0:
            lane.send(1, tutti.IN())
            lane.recv(1, tutti.OUT())
        else:
            step = lane.recv_reduce(q.rank - 1, tutti.OUT(), tutti.IN()).incoming_left()
            if q.rank < last:
                lane.send(q.rank + 1, tutti.OUT())
                lane.recv(q.rank + 1, tutti.OUT())
            else:
                step.final()
            lane.send(q.rank - 1, tutti.OUT())


@tutti.register
class Wrong(Line):
    """Forgets the way back of the first rank."""

    name = "python-wrong"

    def schedule(self, q, s):
        if q.rank > 0 or q.nranks == 1:
            return super().schedule(q, s)
        s.lane().send(1, tutti.IN())


@tutti.register
class Few:
    name, summary, collectives = "python-few", "for 4 ranks", ["barrier"]
    kept = []

    def supports(self, q):
        if q.parameters == "trouble":
            raise RuntimeError("trouble was asked for")
        return None if q.nranks == 4 else f"expected 4 ranks, got {q.nranks}"

    def schedule(self, q, s):
        lane = s.lane()
        self.kept.append((s, lane))
        for distance in (1, 2):
            lane.signal(q.next(distance))
            lane.wait(q.prev(distance))


class Plans(unittest.TestCase):
    def test_a_proof(self):
        for name in ("ring", "python-line"):
            for n in (1, 2, 3, 8):
                proof = tutti.Plan(name, "all_reduce", n).verify()
                self.assertTrue(proof.ok and proof, proof.error)
        proof = tutti.Plan("python-line", "all_reduce", 8).verify()
        self.assertEqual((proof.messages, proof.rounds, proof.error, proof.fault), (14, 14, "", "none"))
        self.assertTrue(proof.same_tree and proof.rank_order)

    def test_a_wrong_algorithm(self):
        plan = tutti.Plan("python-wrong", "all_reduce", 3)
        proof = plan.verify()
        self.assertFalse(proof)
        self.assertEqual(proof.fault, "unmatched")
        self.assertIn("rank 1", proof.error)
        with self.assertRaisesRegex(ValueError, "the schedules are wrong"):
            plan.draw()
        with self.assertRaisesRegex(ValueError, "do not match"):
            plan.seconds(100)

    def test_costs(self):
        plan = tutti.Plan("python-line", "all_reduce", 5)
        self.assertAlmostEqual(plan.seconds(4, latency=1e-3), 8e-3, delta=1e-4)
        self.assertGreater(plan.seconds(1 << 20, bandwidth=1e9), plan.seconds(1 << 10, bandwidth=1e9))

    def test_texts_and_drawings(self):
        plan = tutti.Plan("python-line", "all_reduce", 3)
        lanes = plan.steps(1)
        self.assertEqual(len(lanes), 1)
        self.assertEqual([step.split()[0] for step in lanes[0]], ["recv_reduce", "send", "recv", "send"])
        self.assertTrue(xml.etree.ElementTree.fromstring(plan.draw("a line")).tag.endswith("svg"))
        self.assertIn("a line", plan.draw("a line"))
        with self.assertRaises(IndexError):
            plan.steps(3)

    def test_wrong_plans(self):
        for error, text, call in (
            (tutti.NotFound, "no-such", lambda: tutti.Plan("no-such", "all_reduce", 4)),
            (ValueError, 'no collective "sort"', lambda: tutti.Plan("ring", "sort", 4)),
            (ValueError, "expected a root below nranks", lambda: tutti.Plan("ring", "all_reduce", 4, root=4)),
            (ValueError, "a host for each rank", lambda: tutti.Plan("ring", "all_reduce", 4, hosts=[0, 1])),
            (tutti.NotSupported, "expected 4 ranks, got 3", lambda: tutti.Plan("python-few", "barrier", 3)),
            (tutti.Internal, "trouble was asked for", lambda: tutti.Plan("python-few", "barrier", 4, parameters="trouble")),
            (tutti.Error, "takes no parameters", lambda: tutti.Plan("python-line", "all_reduce", 4, parameters="7")),
        ):
            with self.assertRaisesRegex(error, text):
                call()


class Algorithms(unittest.TestCase):
    def test_it_runs(self):
        self.assertIn("python-line", tutti.algorithms())

        def rank(comm):
            data = array.array("q", range(1000))
            comm.all_reduce(data)
            self.assertEqual(list(data), [4 * i for i in range(1000)])
            comm.barrier()
            return [s["algorithm"] for s in comm.services() if s["calls"]]

        for served in tutti.run_threads(4, rank, algorithms="all_reduce:python-line;barrier:python-few"):
            self.assertEqual(sorted(served), ["python-few", "python-line"])

    def test_a_finished_schedule_takes_no_steps(self):
        tutti.Plan("python-few", "barrier", 4)
        schedule, lane = Few.kept[-1]
        for call in (lambda: lane.nop(), lambda: schedule.lane(), lambda: schedule.sliced()):
            with self.assertRaisesRegex(ValueError, "the schedule is finished"):
                call()

    def test_wrong_algorithms(self):
        def made(**of):
            return type("A", (), {"name": "python-a", "summary": "", "collectives": ["barrier"], "schedule": print, **of})

        for error, text, algorithm in (
            (AttributeError, "name", object()),
            (ValueError, 'no collective "sort"', made(collectives=["sort"])),
            (TypeError, "no method schedule", type("B", (), {"name": "python-b", "summary": "", "collectives": []})),
            (ValueError, 'there is an algorithm "ring" already', made(name="ring")),
        ):
            with self.assertRaisesRegex(error, text):
                tutti.register(algorithm)

    def test_an_exception_in_schedule(self):
        @tutti.register
        class Raises:
            name, summary, collectives = "python-raises", "raises", ["all_reduce"]

            def schedule(self, q, s):
                s.lane(99)

        with self.assertRaisesRegex(tutti.Internal, "lane 99 was asked for"):
            tutti.Plan("python-raises", "all_reduce", 2)

        def rank(comm):
            with self.assertRaisesRegex(tutti.Error, "lane 99 was asked for"):
                comm.all_reduce(bytearray(8))

        tutti.run_threads(2, rank, algorithms="all_reduce:python-raises")


if __name__ == "__main__":
    unittest.main()
