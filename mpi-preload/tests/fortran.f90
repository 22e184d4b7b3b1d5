! SPDX-License-Identifier: Apache-2.0
!
! A program in Fortran: by the module mpi, and by the module mpi_f08.
module checks
  implicit none
  integer :: rank = 0, ranks = 0
contains
  subroutine expect(condition, what)
    logical, intent(in) :: condition
    character(*), intent(in) :: what
    if (.not. condition) then
      print *, 'rank', rank, ': not true: ', what
      error stop
    end if
  end subroutine
end module

module by_mpi
  use checks
  implicit none
contains
  subroutine add(left, right, n, type)
    integer, intent(in) :: n, type
    integer, intent(in) :: left(n)
    integer, intent(inout) :: right(n)
    right = left + right
  end subroutine

  subroutine run_blocking()
    use mpi
    integer :: numbers(2), part, part_rank, all, op, error
    integer, allocatable :: from_all(:)
    real(8) :: real_sum
    numbers = [rank, 1]
    call MPI_Allreduce(MPI_IN_PLACE, numbers, 2, MPI_INTEGER, MPI_SUM, MPI_COMM_WORLD, error)
    call expect(numbers(1) == ranks * (ranks - 1) / 2 .and. numbers(2) == ranks, 'the sum in place')
    call MPI_Reduce(real(rank, 8), real_sum, 1, MPI_DOUBLE_PRECISION, MPI_SUM, 0, MPI_COMM_WORLD, error)
    if (rank == 0) call expect(real_sum == ranks * (ranks - 1) / 2, 'the sum of doubles')
    call MPI_Op_create(add, .true., op, error)
    call MPI_Allreduce(rank, all, 1, MPI_INTEGER, op, MPI_COMM_WORLD, error)
    call expect(all == ranks * (ranks - 1) / 2, 'the sum by an operator of the program')
    call MPI_Op_free(op, error)
    allocate (from_all(ranks))
    call MPI_Allgather(rank, 1, MPI_INTEGER, from_all, 1, MPI_INTEGER, MPI_COMM_WORLD, error)
    call expect(from_all(ranks) == ranks - 1, 'the numbers of all ranks')
    call MPI_Comm_split(MPI_COMM_WORLD, mod(rank, 2), rank, part, error)
    call MPI_Comm_rank(part, part_rank, error)
    call MPI_Bcast(numbers, 2, MPI_INTEGER, 0, part, error)
    call MPI_Barrier(part, error)
    call expect(part_rank == rank / 2, 'the rank in the part')
    call MPI_Comm_free(part, error)
  end subroutine

  subroutine run_non_blocking()
    use mpi
    integer :: requests(2), sum, first, got, sent, done, status(MPI_STATUS_SIZE), error
    logical :: over
    first = merge(7, 0, rank == 0)
    call MPI_Iallreduce(rank, sum, 1, MPI_INTEGER, MPI_SUM, MPI_COMM_WORLD, requests(1), error)
    call MPI_Ibcast(first, 1, MPI_INTEGER, 0, MPI_COMM_WORLD, requests(2), error)
    sent = rank
    call MPI_Sendrecv(sent, 1, MPI_INTEGER, mod(rank + 1, ranks), 3, got, 1, MPI_INTEGER, &
                      mod(rank + ranks - 1, ranks), 3, MPI_COMM_WORLD, status, error)
    call expect(got == mod(rank + ranks - 1, ranks), 'the message')
    call MPI_Waitany(2, requests, done, MPI_STATUS_IGNORE, error)
    call expect(done == 1 .or. done == 2, 'the number of a request')
    call MPI_Waitall(2, requests, MPI_STATUSES_IGNORE, error)
    call expect(sum == ranks * (ranks - 1) / 2 .and. first == 7, 'what the requests bring')
    call MPI_Ibarrier(MPI_COMM_WORLD, requests(1), error)
    over = .false.
    do while (.not. over)
      call MPI_Test(requests(1), over, MPI_STATUS_IGNORE, error)
    end do
  end subroutine
end module

module by_mpi_f08
  use checks
  implicit none
contains
  subroutine run_f08()
    use mpi_f08
    integer :: sum, least
    type(MPI_Request) :: request
    type(MPI_Comm) :: copy
    call MPI_Comm_dup(MPI_COMM_WORLD, copy)
    sum = rank
    call MPI_Allreduce(MPI_IN_PLACE, sum, 1, MPI_INTEGER, MPI_SUM, copy)
    call MPI_Iallreduce(rank, least, 1, MPI_INTEGER, MPI_MIN, copy, request)
    call MPI_Wait(request, MPI_STATUS_IGNORE)
    call expect(sum == ranks * (ranks - 1) / 2 .and. least == 0, 'sum and minimum by mpi_f08')
    call MPI_Comm_free(copy)
  end subroutine
end module

program fortran
  use mpi
  use checks
  use by_mpi
  use by_mpi_f08
  implicit none
  integer :: error
  call MPI_Init(error)
  call MPI_Comm_rank(MPI_COMM_WORLD, rank, error)
  call MPI_Comm_size(MPI_COMM_WORLD, ranks, error)
  call run_blocking()
  call run_non_blocking()
  call run_f08()
  call MPI_Finalize(error)
  if (rank == 0) print '(a)', 'passed'
end program
