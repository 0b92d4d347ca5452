"""The smallest server that speaks MTurk's requester API: what the client library sends, and answers that it parses.

The service model of botocore says which operations and fields there are; this server refuses what the model requires
and a request lacks. It was never compared with MTurk itself.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from xml.etree import ElementTree

import botocore.session

Json = dict[str, Any]
_FORM = (
    '<?xml version="1.0"?><QuestionFormAnswers xmlns="http://mechanicalturk.amazonaws.com/">'
    "<Answer><QuestionIdentifier>code</QuestionIdentifier><FreeText>{}</FreeText></Answer></QuestionFormAnswers>"
)


class MTurkService(ThreadingHTTPServer):
    """HITs, and what workers do with them: ``take`` and ``submit``."""

    def __init__(self) -> None:
        self.model = botocore.session.get_session().get_service_model("mturk")
        self.hits: dict[str, Json] = {}
        self.assignments: dict[str, Json] = {}
        self.tokens: set[str] = set()
        #: By id: the name of each qualification, and the workers who have it.
        self.qualifications: dict[str, str] = {}
        self.holders: dict[str, set[str]] = {}
        #: How many assignments of a worker were approved before, and which share, for MTurk's own qualifications.
        self.records: dict[str, tuple[int, int]] = {}
        service = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                target = self.headers["X-Amz-Target"].rpartition(".")[2]
                signed = "AWS4-HMAC-SHA256" in self.headers.get("Authorization", "")
                code, answer = service.call(target, body) if signed else (403, _error("AccessDenied", "unsigned"))
                content = json.dumps(answer).encode()
                self.send_response(code)
                self.send_header("Content-Type", "application/x-amz-json-1.1")
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            def log_message(self, format: str, *arguments: object) -> None:
                pass

        super().__init__(("127.0.0.1", 0), Handler)
        self.address = f"http://127.0.0.1:{self.server_port}"
        threading.Thread(target=self.serve_forever, daemon=True).start()

    def call(self, operation: str, body: Json) -> tuple[int, Json]:
        shape = self.model.operation_model(operation).input_shape
        missing = [name for name in shape.required_members if name not in body]
        if missing:
            return 400, _error("ParameterValidationError", f"missing {missing}")
        methods: dict[str, Callable[[Json], tuple[int, Json]]] = {
            "CreateHIT": self.create_hit,
            "ListHITs": self.list_hits,
            "ListAssignmentsForHIT": self.list_assignments,
            "ApproveAssignment": lambda request: self.judge(request, "Approved"),
            "RejectAssignment": lambda request: self.judge(request, "Rejected"),
            "UpdateExpirationForHIT": self.expire,
            "CreateQualificationType": self.create_qualification,
            "ListQualificationTypes": self.list_qualifications,
            "AssociateQualificationWithWorker": self.associate,
            "DisassociateQualificationFromWorker": self.disassociate,
            "ListWorkersWithQualificationType": self.list_holders,
        }
        return methods[operation](body)

    def expire(self, body: Json) -> tuple[int, Json]:
        """A date in the past ends the offer; what was accepted may still be submitted."""
        hit = self.hits[body["HITId"]]
        if body["ExpireAt"] < datetime.now(UTC).timestamp():
            hit["HITStatus"] = "Unassignable" if hit["NumberOfAssignmentsPending"] else "Reviewable"
        return 200, {}

    def create_qualification(self, body: Json) -> tuple[int, Json]:
        if body["Name"] in self.qualifications.values():
            return 400, _error("RequestError", "this name is taken")
        number = f"QUALIFICATION{len(self.qualifications)}"
        self.qualifications[number] = body["Name"]
        self.holders[number] = set()
        return 200, {"QualificationType": {"QualificationTypeId": number, "Name": body["Name"]}}

    def list_qualifications(self, body: Json) -> tuple[int, Json]:
        """Like MTurk, everything that contains the words of the query."""
        types = []
        for number, name in self.qualifications.items():
            if set(body["Query"].split()) & set(name.split()):
                types.append({"QualificationTypeId": number, "Name": name})
        return 200, {"QualificationTypes": types, "NumResults": len(types)}

    def associate(self, body: Json) -> tuple[int, Json]:
        self.holders[body["QualificationTypeId"]].add(body["WorkerId"])
        return 200, {}

    def disassociate(self, body: Json) -> tuple[int, Json]:
        self.holders[body["QualificationTypeId"]].remove(body["WorkerId"])
        return 200, {}

    def list_holders(self, body: Json) -> tuple[int, Json]:
        workers = self.holders[body["QualificationTypeId"]]
        return 200, {"Qualifications": [{"WorkerId": worker} for worker in workers], "NumResults": len(workers)}

    def may_see(self, worker: str, hit: Json) -> bool:
        """Whether a worker meets the requirements of a HIT."""
        number, percent = self.records.get(worker, (0, 100))
        values = {"00000000000000000040": number, "000000000000000000L0": percent}
        for requirement in hit.get("QualificationRequirements", []):
            qualification = requirement["QualificationTypeId"]
            if requirement["Comparator"] == "DoesNotExist":
                met = worker not in self.holders[qualification]
            else:
                assert requirement["Comparator"] == "GreaterThanOrEqualTo"
                met = values[qualification] >= requirement["IntegerValues"][0]
            if not met:
                return False
        return True

    def create_hit(self, body: Json) -> tuple[int, Json]:
        if body["UniqueRequestToken"] in self.tokens:
            return 400, _error("RequestError", "this token was used before")
        self.tokens.add(body["UniqueRequestToken"])
        number = f"HIT{len(self.hits):03d}"
        self.hits[number] = {
            **{name: value for name, value in body.items() if name != "UniqueRequestToken"},
            "HITId": number,
            "HITStatus": "Assignable",
            "NumberOfAssignmentsAvailable": body["MaxAssignments"],
            "NumberOfAssignmentsPending": 0,
            "CreationTime": datetime.now(UTC).timestamp(),
        }
        return 200, {"HIT": self.hits[number]}

    def list_hits(self, body: Json) -> tuple[int, Json]:
        """Two on a page, so that the client must ask for the next one."""
        start = int(body.get("NextToken", 0))
        hits = list(self.hits.values())[start : start + 2]
        answer = {"HITs": hits, "NumResults": len(hits)}
        if start + 2 < len(self.hits):
            answer["NextToken"] = str(start + 2)
        return 200, answer

    def list_assignments(self, body: Json) -> tuple[int, Json]:
        statuses = body.get("AssignmentStatuses", ["Submitted", "Approved", "Rejected"])
        assignments = []
        for assignment in self.assignments.values():
            if assignment["HITId"] == body["HITId"] and assignment["AssignmentStatus"] in statuses:
                assignments.append(assignment)
        return 200, {"Assignments": assignments, "NumResults": len(assignments)}

    def judge(self, body: Json, status: str) -> tuple[int, Json]:
        assignment = self.assignments[body["AssignmentId"]]
        overturned = body.get("OverrideRejection") and assignment["AssignmentStatus"] == "Rejected"
        if assignment["AssignmentStatus"] != "Submitted" and not overturned:
            return 400, _error("RequestError", f"is {assignment['AssignmentStatus']}")
        assignment["AssignmentStatus"] = status
        assignment["RequesterFeedback"] = body.get("RequesterFeedback", "")
        return 200, {}

    def take(self, worker: str) -> tuple[str, str]:
        """A worker accepts a HIT that they have not taken: the address of the page, and the assignment."""
        mine = {one["HITId"] for one in self.assignments.values() if one["WorkerId"] == worker}
        for number, hit in self.hits.items():
            offered = hit["HITStatus"] == "Assignable" and hit["NumberOfAssignmentsAvailable"]
            if offered and number not in mine and self.may_see(worker, hit):
                hit["NumberOfAssignmentsAvailable"] -= 1
                hit["NumberOfAssignmentsPending"] += 1
                assignment = f"ASSIGN{len(self.assignments):03d}"
                self.assignments[assignment] = {
                    "AssignmentId": assignment,
                    "WorkerId": worker,
                    "HITId": number,
                    "AssignmentStatus": "Accepted",
                }
                address = ElementTree.fromstring(hit["Question"])[0].text
                assert address is not None
                return address, assignment
        raise LookupError("no HIT is left for this worker")

    def submit(self, assignment: str, code: str) -> None:
        """What the form at the end of a page brings."""
        entry = self.assignments[assignment]
        hit = self.hits[entry["HITId"]]
        hit["NumberOfAssignmentsPending"] -= 1
        entry |= {"AssignmentStatus": "Submitted", "Answer": _FORM.format(code)}


def _error(kind: str, message: str) -> Json:
    return {"__type": kind, "Message": message}
